"""The style sheet of the HTML report: phone, desk, paper, dark."""

from __future__ import annotations

CSS = """
:root{--ground:#f4f5f7;--card:#fff;--ink:#1d2026;--quiet:#5b626d;--rule:#dfe2e7;--link:#0b5cad;
--mark-ground:#fff1d6;--mark-ink:#7a4a00;--stripe:#f8f9fa}
@media screen and (prefers-color-scheme:dark){:root{--ground:#121418;--card:#1b1e24;--ink:#e4e6ea;--quiet:#a6adb8;
--rule:#343943;--link:#7db8f2;--mark-ground:#3d2e0d;--mark-ink:#ffd27a;--stripe:#20242b}}
*{box-sizing:border-box}
body{margin:0 auto;padding:20px 16px 48px;max-width:1060px;background:var(--ground);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;-webkit-text-size-adjust:100%}
h1{font-size:1.6rem;line-height:1.25;margin:.2em 0 .5em}
h2{font-size:1.25rem;line-height:1.3;margin:0 0 .5em}
h3{font-size:1rem;margin:1.4em 0 .5em}
a{color:var(--link)}
nav ol{margin:0 0 20px;padding:12px 16px 12px 38px;background:var(--card);border:1px solid var(--rule);
border-radius:8px}
nav li{padding:2px 0}
section{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:18px 20px;margin:0 0 18px;
scroll-margin-top:8px}
.mark{display:inline-block;margin:0 8px 10px 0;padding:3px 10px;border-radius:5px;background:var(--mark-ground);
color:var(--mark-ink);font-size:.86rem;font-weight:600}
.summary{margin:.2em 0 1em;font-size:1.06rem;overflow-wrap:anywhere}
.note,.ids{color:var(--quiet);font-size:.88rem;overflow-wrap:anywhere}
.ids{margin:1.2em 0 0}
.numbers{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px;margin:0 0 1em}
.numbers div{border:1px solid var(--rule);border-radius:6px;padding:8px 12px;min-width:0}
.numbers dt{color:var(--quiet);font-size:.84rem}
.numbers dd{margin:0}
.numbers .value{font-size:1.1rem;font-weight:600;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.numbers .bound{color:var(--quiet);font-size:.8rem}
figure{margin:1.2em 0;max-width:680px}
figure svg{display:block;width:100%;height:auto;border:1px solid var(--rule);border-radius:6px}
details{margin:.5em 0}
summary{cursor:pointer;color:var(--link);font-size:.9rem}
.scroll{overflow-x:auto;margin:.4em 0}
table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums;min-width:100%}
th,td{text-align:left;vertical-align:top;padding:5px 10px;border-bottom:1px solid var(--rule)}
td{max-width:34em;overflow-wrap:break-word}
th{color:var(--quiet);font-weight:600;white-space:nowrap}
tbody tr:nth-child(even){background:var(--stripe)}
.n{text-align:right;white-space:nowrap}
.d{white-space:nowrap}
td.t{min-width:24em}
code{font-size:.92em;overflow-wrap:anywhere}
@media (max-width:600px){td.t{min-width:14em}body{padding:12px 10px 32px;font-size:15px}section{padding:14px 12px}
figure{overflow-x:auto}figure svg:not([data-narrow]){width:480px;max-width:none}
h1{font-size:1.35rem}.numbers{grid-template-columns:repeat(2,minmax(0,1fr))}th,td{padding:5px 7px}
}
@media print{body{max-width:none;padding:0;background:#fff;font-size:10.5pt}
section{border:0;border-top:1px solid #999;border-radius:0;padding:10px 0;margin:0}
.mark{border:1px solid #7a4a00}.scroll{overflow:visible}table{font-size:8.5pt;min-width:0;width:100%}
th,td{white-space:normal;overflow-wrap:anywhere;padding:2px 5px}
.n,.d{white-space:nowrap}td.t{min-width:0}table.wide{font-size:6.5pt;table-layout:fixed}
table.wide .n,table.wide .d{white-space:normal}
table.wide th,table.wide td{padding:2px 3px}figure,tr,.numbers div{break-inside:avoid}h2,h3{break-after:avoid}
details::details-content{content-visibility:visible;block-size:auto;display:block}
details>summary{color:var(--quiet)}nav{break-after:avoid}}
""".strip()
