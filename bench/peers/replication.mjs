// pg-logical-replication with its own pgoutput parser, until it has seen so many inserts.
// Prints the seconds from the first message to the last row.
//
//     node replication.mjs HOST PORT DATABASE SLOT PUBLICATION ROWS

import { LogicalReplicationService, PgoutputPlugin } from 'pg-logical-replication';

const [host, port, database, slot, publication, rows] = process.argv.slice(2);
const service = new LogicalReplicationService(
  { host, port: Number(port), database, user: 'postgres' },
  { acknowledge: { auto: false, timeoutSeconds: 10 } },
);
let seen = 0;
let began = 0n;
service.on('data', (_lsn, message) => {
  if (began === 0n) began = process.hrtime.bigint();
  if (message.tag !== 'insert') return;
  seen += 1;
  if (seen >= Number(rows)) {
    const seconds = Number(process.hrtime.bigint() - began) / 1e9;
    console.log(`seconds ${seconds.toFixed(3)} rows ${seen}`);
    process.exit(0);
  }
});
service.on('error', (error) => {
  console.error(error);
  process.exit(1);
});
await service.subscribe(
  new PgoutputPlugin({ protoVersion: 1, publicationNames: [publication] }),
  slot,
);
