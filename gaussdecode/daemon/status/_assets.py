"""Style and script of all pages; the content policy names both by their hashes.

A page can be read without them. Without the style it is a plain document; without the script it loads itself
again every few seconds. The script replaces only sections that changed, so that focus, selection and
scrolling stay.
"""

import base64
import hashlib
from typing import Final

STYLE: Final = """\
:root{color-scheme:light dark;--back:#f6f7f9;--card:#fff;--line:#dfe3e8;--text:#1c2430;
--soft:#566170;--one:#1f6feb;--two:#b35900;--good:#1a7f37;--warn:#8a5c00;--bad:#c9252d;
--track:#e9ecf0;--link:#0b57d0}
@media (prefers-color-scheme:dark){:root{--back:#0e1218;--card:#171d26;--line:#2b3440;
--text:#e4e9f0;--soft:#97a3b2;--one:#58a6ff;--two:#f0a04b;--good:#3fb950;--warn:#d9a520;
--bad:#ff6b6b;--track:#252e3a;--link:#8ab4f8}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--text);font:15px/1.45 system-ui,sans-serif}
main{max-width:1180px;margin:0 auto;padding:16px}
header{display:flex;flex-wrap:wrap;align-items:baseline;gap:4px 14px;margin-bottom:12px}
h1{font-size:22px;margin:0;overflow-wrap:anywhere}
h2{font-size:14px;margin:0 0 8px;color:var(--soft);font-weight:600}
header p,footer p{margin:0;color:var(--soft);overflow-wrap:anywhere}
header p{flex-basis:100%}
a{color:var(--link)}
:focus-visible{outline:3px solid var(--link);outline-offset:2px;border-radius:3px}
.state{padding:1px 10px;border-radius:10px;color:#fff;background:var(--soft);font-weight:600}
td .state{white-space:nowrap}
.state.good{background:var(--good)}
.state.warning{background:var(--warn)}
.state.error{background:var(--bad)}
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
ul.causes{list-style:none;margin:0;padding:0}
ul.causes li{border-left:4px solid var(--soft);padding:2px 0 2px 10px;margin:0 0 12px;overflow-wrap:anywhere}
ul.causes li:last-child{margin-bottom:0}
ul.causes li.warning{border-color:var(--warn)}
ul.causes li.error{border-color:var(--bad)}
ul.causes p{margin:0 0 2px}
ul.causes p+p{color:var(--soft)}
.scroll{overflow:auto;max-height:27em}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:14px}
th,td{padding:3px 10px 3px 0;text-align:right;white-space:nowrap}
th:first-child,.guide td,.text td{text-align:left;white-space:normal;overflow-wrap:anywhere;
min-width:11em}
thead th{color:var(--soft);font-weight:500;font-size:12px}
tbody th{font-weight:400;color:var(--text)}
tbody tr+tr>*{border-top:1px solid var(--line)}
.bars{table-layout:fixed}
.bars td{padding-right:12px}
.bars th{white-space:normal}
.bars th:first-child{width:8.2em;min-width:0;white-space:nowrap}
.facts th:first-child{min-width:9em}
.facts td{white-space:normal;overflow-wrap:anywhere}
.bar{display:flex;align-items:center;gap:8px}
.bar svg{flex:1 1 0;width:0;min-width:24px;height:12px;display:block}
.bar span{min-width:2.6em;text-align:right}
.chart{margin-bottom:10px}
.chart p{display:flex;flex-wrap:wrap;column-gap:8px;justify-content:space-between;margin:0;color:var(--soft);font-size:13px;white-space:nowrap}
.chart b{color:var(--text)}
.chart svg{display:block;width:100%;height:64px;background:var(--track);border-radius:4px}
.chart.trend{margin:0}
.chart.trend svg{width:120px;height:24px}
.chart path{fill:none;stroke:var(--one);stroke-width:1.5;vector-effect:non-scaling-stroke}
.chart path.area{fill:var(--one);opacity:.16;stroke:none}
.track{fill:var(--track)}.one{fill:var(--one)}.two-fill{fill:var(--two)}
#said{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
#stale{display:none;background:#b3141d;color:#fff;padding:6px 16px;text-align:center}
body.stale #stale{display:block}
body.stale main{filter:grayscale(1)}
code{font:13px/1.4 ui-monospace,monospace;background:var(--track);color:var(--text);padding:1px 4px;
border-radius:4px;overflow-wrap:anywhere}
ul.causes code{user-select:all}
.copy{display:none;font:inherit;font-size:12px;margin-left:4px;padding:2px 8px;min-height:24px;
color:var(--text);background:var(--card);border:1px solid var(--soft);border-radius:4px;cursor:pointer}
.live .copy{display:inline-block}
#acts{display:none}
.live #acts{display:block}
#acts p{margin:0 0 6px;overflow-wrap:anywhere}
#acts input,.act{font:inherit;min-height:28px;padding:2px 8px;color:var(--text);background:var(--card);
border:1px solid var(--soft);border-radius:4px;max-width:100%}
.act{cursor:pointer}
.guide{overflow-wrap:anywhere}
.guide h2,.guide h3{font-size:16px;color:var(--text);margin:18px 0 6px}
.guide h2:first-child{margin-top:0}
.guide .scroll{max-height:none}
.guide :target{border-left:4px solid var(--link);padding-left:8px}
"""

SCRIPT: Final = """\
(function () {
  'use strict';
  var waiting = false;
  function ids(main) {
    return Array.from(main.children, function (e) { return e.id; }).join();
  }
  function replace(old, fresh) {
    var focused = old.contains(document.activeElement) ? document.activeElement.id : '';
    var places = {};
    old.querySelectorAll('.scroll').forEach(function (e) { places[e.id] = [e.scrollLeft, e.scrollTop]; });
    old.replaceWith(fresh);
    fresh.querySelectorAll('.scroll').forEach(function (e) {
      if (places[e.id]) { e.scrollTo(places[e.id][0], places[e.id][1]); }
    });
    var again = focused && document.getElementById(focused);
    if (again) { again.focus({preventScroll: true}); }
  }
  async function load() {
    if (document.hidden || waiting) { return; }
    waiting = true;
    try {
      var answer = await fetch(location.pathname, {cache: 'no-store', signal: AbortSignal.timeout(8000)});
      if (!answer.ok) { throw new Error(answer.status); }
      var page = new DOMParser().parseFromString(await answer.text(), 'text/html');
      var main = document.querySelector('main'), fresh = page.querySelector('main');
      if (ids(main) !== ids(fresh)) {
        replace(main, fresh);
      } else {
        var sections = Array.from(fresh.children);
        Array.from(main.children).forEach(function (e, i) {
          if (e.id !== 'acts' && e.outerHTML !== sections[i].outerHTML) { replace(e, sections[i]); }
        });
      }
      if (document.title !== page.title) {
        document.title = page.title;
        document.getElementById('said').textContent = page.title;
        document.querySelector('link').replaceWith(page.querySelector('link'));
      }
      document.body.className = '';
    } catch (error) {
      document.body.className = 'stale';
    }
    waiting = false;
  }
  document.addEventListener('click', async function (event) {
    var button = event.target.closest('.copy');
    if (!button) { return; }
    var code = button.previousElementSibling;
    getSelection().selectAllChildren(code);
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = 'Copied';
    } catch (error) {
      button.textContent = 'Selected';
    }
  });
  document.addEventListener('submit', function (event) { event.preventDefault(); });
  document.addEventListener('click', async function (event) {
    var button = event.target.closest('.act');
    if (!button) { return; }
    var token = document.getElementById('token'), said = document.getElementById('acted');
    if (token && token.value) { sessionStorage.setItem('token', token.value); }
    var table = button.matches('.of-table') ? document.getElementById('act-table').value : null;
    said.textContent = button.textContent + ' ...';
    try {
      var answer = await fetch('/ctl', {
        method: 'POST', headers: token ? {Authorization: 'Bearer ' + sessionStorage.getItem('token')} : {},
        body: JSON.stringify({act: button.textContent, table: table})
      });
      var told = await answer.json();
      said.textContent = (told.is_done ? '' : 'Not done: ') + told.text;
    } catch (error) {
      said.textContent = 'No answer: ' + error;
    }
  });
  document.documentElement.className = 'live';
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
        "img-src data:",  # the icon, which stands in the document
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
