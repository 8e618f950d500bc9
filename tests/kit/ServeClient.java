import java.nio.ByteBuffer;
import java.sql.Connection;
import java.sql.DriverManager;
import java.util.Properties;
import org.postgresql.PGConnection;
import org.postgresql.PGProperty;
import org.postgresql.replication.LogSequenceNumber;
import org.postgresql.replication.PGReplicationStream;
import org.postgresql.replication.fluent.logical.ChainedLogicalStreamBuilder;

/**
 * Reads all that slots of a server have, as the product's documents do it: URL LSN, then PLUGIN[,OPTION=VALUE ...]
 * for each stream. Prints the messages of a stream as hexadecimal digits, a line each, and then an empty line.
 */
public class ServeClient {
    private static final String SLOT = "of_jdbc";

    public static void main(String[] given) throws Exception {
        LogSequenceNumber until = LogSequenceNumber.valueOf(given[1]);
        for (int at = 2; at < given.length; at++) {
            String[] words = given[at].split(",");
            try (Connection session = connect(given[0])) {
                PGConnection connection = session.unwrap(PGConnection.class);
                connection.getReplicationAPI().createReplicationSlot().logical().withSlotName(SLOT)
                    .withOutputPlugin(words[0]).make();
                read(connection, words, until);
            }
            try (Connection session = connect(given[0])) {
                session.unwrap(PGConnection.class).getReplicationAPI().dropReplicationSlot(SLOT);
            }
        }
    }

    private static Connection connect(String url) throws Exception {
        Properties properties = new Properties();
        PGProperty.USER.set(properties, "me");
        PGProperty.PASSWORD.set(properties, "none");
        PGProperty.ASSUME_MIN_SERVER_VERSION.set(properties, "9.4");
        PGProperty.REPLICATION.set(properties, "database");
        PGProperty.PREFER_QUERY_MODE.set(properties, "simple");
        properties.setProperty("options", "-c gaussdecode.start_lsn=earliest");
        return DriverManager.getConnection(url, properties);
    }

    private static void read(PGConnection connection, String[] words, LogSequenceNumber until) throws Exception {
        ChainedLogicalStreamBuilder builder = connection.getReplicationAPI().replicationStream().logical()
            .withSlotName(SLOT).withStartPosition(LogSequenceNumber.valueOf("0/1"));
        for (int at = 1; at < words.length; at++) {
            String[] pair = words[at].split("=", 2);
            builder.withSlotOption(pair[0], pair[1]);
        }
        PGReplicationStream stream = builder.start();  // openGauss' one is not AutoCloseable
        try {
            while (stream.getLastReceiveLSN().asLong() < until.asLong()) {
                ByteBuffer message = stream.readPending();
                if (message == null) {
                    stream.forceUpdateStatus();
                    Thread.sleep(5);
                    continue;
                }
                StringBuilder digits = new StringBuilder();
                while (message.hasRemaining()) {
                    digits.append(String.format("%02x", message.get()));
                }
                System.out.println(digits);
                stream.setAppliedLSN(stream.getLastReceiveLSN());
                stream.setFlushedLSN(stream.getLastReceiveLSN());
            }
            stream.forceUpdateStatus();
        } finally {
            stream.close();
        }
        System.out.println();
    }
}
