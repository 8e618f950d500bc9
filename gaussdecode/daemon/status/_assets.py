"""Style and script of the status page; the page's policy names both by their hashes.

Nothing here is needed to read the page: without the style it is a plain document, without
the script it loads itself again every few seconds.
"""

import base64
import hashlib
from typing import Final

STYLE: Final = """\
:root{color-scheme:light dark;--back:#f6f7f9;--card:#fff;--line:#dfe3e8;--text:#1c2430;
--soft:#5a6675;--one:#1f6feb;--two:#b35900;--good:#1a7f37;--warn:#9a6700;--bad:#c9252d;
--track:#e9ecf0;--rest:#c3cad3}
@media (prefers-color-scheme:dark){:root{--back:#0e1218;--card:#171d26;--line:#2b3440;
--text:#e4e9f0;--soft:#97a3b2;--one:#58a6ff;--two:#f0a04b;--good:#3fb950;--warn:#d9a520;
--bad:#ff6b6b;--track:#252e3a;--rest:#465262}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--text);font:15px/1.45 system-ui,sans-serif}
main{max-width:1180px;margin:0 auto;padding:16px}
header{display:flex;flex-wrap:wrap;align-items:baseline;gap:4px 14px;margin-bottom:12px}
h1{font-size:22px;margin:0;overflow-wrap:anywhere}
h2{font-size:14px;margin:0 0 8px;color:var(--soft);font-weight:600}
header p,footer p{margin:0;color:var(--soft);overflow-wrap:anywhere}
.state{padding:1px 10px;border-radius:10px;color:#fff;background:var(--warn);font-weight:600}
.state.streaming{background:var(--good)}
.state.stopping{background:var(--soft)}
@media (prefers-color-scheme:dark){.state{color:#0e1218}}
section{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px 14px;
margin-bottom:12px;min-width:0}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:0 12px;align-items:start}
@media (min-width:980px){.two.wide{grid-template-columns:minmax(0,8fr) minmax(0,5fr)}}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(190px,45%),1fr));gap:10px;margin:0}
.tiles div{min-width:0}
.tiles dt{color:var(--soft);font-size:12px}
.tiles dd{margin:0;font-size:18px;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.limit{margin:0;font-size:17px}
.limit+p{margin:4px 0 0;color:var(--soft)}
ul.advice{list-style:none;margin:0;padding:0}
ul.advice li{border-left:4px solid var(--warn);padding:2px 0 2px 10px;margin:6px 0}
ul.advice li.error{border-color:var(--bad)}
ul.advice span{display:block;color:var(--soft)}
.scroll{overflow:auto;max-height:27em}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:14px}
th,td{padding:3px 10px 3px 0;text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left;white-space:normal;overflow-wrap:anywhere;
min-width:11em}
th{color:var(--soft);font-weight:500;font-size:12px}
tr+tr td{border-top:1px solid var(--line)}
.bars{table-layout:fixed}
.bars td{padding-right:12px}
.bars th{white-space:normal}
.bars th:first-child,.bars td:first-child{width:8.2em;min-width:0}
.bars td:first-child{white-space:nowrap}
.bar{display:flex;align-items:center;gap:8px}
.bar svg{flex:1 1 0;width:0;min-width:24px;height:12px;display:block}
.bar span{min-width:2.6em;text-align:right}
.chart{margin-bottom:10px}
.chart p{display:flex;justify-content:space-between;margin:0;color:var(--soft);font-size:13px}
.chart b{color:var(--text)}
.chart svg{display:block;width:100%;height:64px;background:var(--track);border-radius:4px}
.chart path{fill:none;stroke:var(--one);stroke-width:1.5;vector-effect:non-scaling-stroke}
.chart path.area{fill:var(--one);opacity:.16;stroke:none}
.track{fill:var(--track)}.one{fill:var(--one)}.two-fill{fill:var(--two)}.rest{fill:var(--rest)}
.key span{margin-right:14px}
.key i{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:5px}
i.one{background:var(--one)}i.two-fill{background:var(--two)}i.rest{background:var(--rest)}
#stale{display:none;background:var(--bad);color:#fff;padding:6px 16px;text-align:center}
body.stale #stale{display:block}
body.stale main{opacity:.55}
code{font:13px/1.4 ui-monospace,monospace}
"""

SCRIPT: Final = """\
(function () {
  'use strict';
  var waiting = false;
  async function load() {
    if (document.hidden || waiting) { return; }
    waiting = true;
    try {
      var answer = await fetch('/', {cache: 'no-store', signal: AbortSignal.timeout(8000)});
      if (!answer.ok) { throw new Error(answer.status); }
      var page = new DOMParser().parseFromString(await answer.text(), 'text/html');
      var left = document.querySelectorAll('.scroll').length;
      var places = Array.from(document.querySelectorAll('.scroll'), function (e) {
        return [e.scrollLeft, e.scrollTop];
      });
      document.querySelector('main').replaceWith(page.querySelector('main'));
      document.title = page.title;
      document.body.className = '';
      document.querySelectorAll('.scroll').forEach(function (e, i) {
        if (i < left) { e.scrollTo(places[i][0], places[i][1]); }
      });
    } catch (error) {
      document.body.className = 'stale';
    }
    waiting = false;
  }
  setInterval(load, 2000);
  document.addEventListener('visibilitychange', load);
})();
"""


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


CONTENT_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        f"style-src {_hash(STYLE)}",
        f"script-src {_hash(SCRIPT)}",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
