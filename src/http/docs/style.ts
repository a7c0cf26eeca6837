/** The style of the page: one column on a phone, navigation and samples beside it on a desk. */

/** Colours and corners of every page that people read; the console takes them too. */
export const LIGHT =
  '--ground:#fbfbfa;--panel:#fff;--raised:#f3f3f0;--line:#e3e3de;--text:#1c1d1a;--soft:#63665e;--accent:#0b6e5f;--accent-soft:#e2f2ee;--code:#1d2021;--code-text:#e8e6df;--code-line:#32363a;--get:#1560a8;--post:#0b6e5f;--patch:#8a5a00;--delete:#b3261e;--good:#0b6e5f;--bad:#b3261e;--radius:8px';
export const DARK =
  '--ground:#131514;--panel:#191c1b;--raised:#212524;--line:#2c312f;--text:#e9ebe6;--soft:#a0a69e;--accent:#5fc9b3;--accent-soft:#17332d;--code:#0d0f0f;--code-text:#dfe3dc;--code-line:#262b2a;--get:#79b8f3;--post:#5fc9b3;--patch:#e0b15a;--delete:#f2877f;--good:#5fc9b3;--bad:#f2877f';

export const STYLE = `
:root{color-scheme:light dark;${LIGHT}}
@media (prefers-color-scheme:dark){:root{${DARK}}}
*{box-sizing:border-box}
html{scroll-behavior:smooth;scroll-padding-top:1rem;-webkit-text-size-adjust:100%}
@media (prefers-reduced-motion:reduce){html{scroll-behavior:auto}}
body{margin:0;background:var(--ground);color:var(--text);font:16px/1.6 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
a{color:var(--accent);text-decoration-thickness:1px;text-underline-offset:2px}
a:focus-visible,button:focus-visible,summary:focus-visible,pre:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
.skip{position:absolute;left:-99rem}.skip:focus{left:1rem;top:1rem;background:var(--panel);padding:.5rem 1rem;z-index:9}
.page{display:grid;grid-template-columns:minmax(0,1fr)}
nav{border-bottom:1px solid var(--line);background:var(--panel);padding:.75rem 1.25rem;position:sticky;top:0;z-index:5;max-height:100vh;overflow:auto}
nav .brand{font-weight:650;font-size:1.05rem;color:var(--text);text-decoration:none}
nav .brand small{font-weight:400;color:var(--soft);margin-left:.4rem;font-size:.8rem}
nav summary{cursor:pointer;list-style:none;display:flex;justify-content:space-between;align-items:center}
nav summary::-webkit-details-marker{display:none}
nav summary::after{content:"Menu";font-size:.85rem;color:var(--soft);border:1px solid var(--line);border-radius:var(--radius);padding:.15rem .6rem}
nav details[open] summary::after{content:"Close"}
nav h2{font-size:.75rem;letter-spacing:.06em;text-transform:uppercase;color:var(--soft);margin:1.25rem 0 .35rem;font-weight:600}
nav ul{list-style:none;margin:0;padding:0}
nav li a{display:flex;gap:.5rem;align-items:baseline;padding:.22rem .5rem;margin:0 -.5rem;border-radius:6px;color:var(--text);text-decoration:none;font-size:.9rem}
nav li a:hover{background:var(--raised)}
.verb{font:600 .68rem/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;letter-spacing:.02em;min-width:2.9rem;display:inline-block}
.verb.get{color:var(--get)}.verb.post{color:var(--post)}.verb.patch,.verb.put{color:var(--patch)}.verb.delete{color:var(--delete)}
main{padding:1.5rem 1.25rem 5rem;min-width:0}
header.top{border-bottom:1px solid var(--line);padding-bottom:1.5rem;margin-bottom:2rem;max-width:46rem}
h1{font-size:clamp(1.7rem,1.2rem + 2vw,2.4rem);line-height:1.15;letter-spacing:-.02em;margin:.2rem 0 .6rem}
main h2{font-size:1.5rem;letter-spacing:-.01em;line-height:1.25;margin:3.5rem 0 .25rem;padding-top:1rem}
main h3{font-size:1.15rem;line-height:1.35;margin:0 0 .4rem}
main h4{font-size:.8rem;letter-spacing:.05em;text-transform:uppercase;color:var(--soft);margin:1.6rem 0 .4rem;font-weight:600}
p{margin:.4rem 0 .8rem}
main h4 code{text-transform:none;letter-spacing:0}
.about{max-width:46rem}
.samples{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));gap:0 1.5rem;max-width:60rem;margin-top:.8rem;align-items:start}
.columns>aside{order:-1}
.lead{font-size:1.1rem;color:var(--soft)}
.soft{color:var(--soft)}
.facts{display:flex;flex-wrap:wrap;gap:.5rem;margin-top:1rem;padding:0;list-style:none}
.facts li{background:var(--raised);border:1px solid var(--line);border-radius:99px;padding:.15rem .75rem;font-size:.85rem;overflow-wrap:anywhere}
code{font:.875em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;background:var(--raised);border-radius:4px;padding:.1em .3em;overflow-wrap:anywhere}
article{border-top:1px solid var(--line);padding:2rem 0 1rem}
.columns{display:grid;grid-template-columns:minmax(0,1fr);gap:1.5rem}
.path{font:500 .95rem/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;overflow-wrap:anywhere;margin:0 0 .8rem;color:var(--soft)}
.path .verb{font-size:.95rem;min-width:0;margin-right:.5rem}
.badge{font-size:.75rem;border:1px solid var(--line);border-radius:99px;padding:.05rem .55rem;color:var(--soft);white-space:nowrap}
.badges{display:flex;flex-wrap:wrap;gap:.4rem;margin:.2rem 0 .6rem}
.fields{border-top:1px solid var(--line);margin:0}
.field{border-bottom:1px solid var(--line);padding:.55rem 0}
.field dt{display:flex;flex-wrap:wrap;gap:.15rem .6rem;align-items:baseline}
.field dt code{background:none;padding:0;font-weight:600;font-size:.9rem}
.field .kind{color:var(--soft);font-size:.82rem;overflow-wrap:anywhere}
.field .must{color:var(--bad);font-size:.78rem}
.field dd{margin:.1rem 0 0;font-size:.92rem}.field dd p{margin:.1rem 0}
.field details{margin:.4rem 0 0}
.field details>summary{cursor:pointer;color:var(--accent);font-size:.85rem}
.field details .fields{border-left:2px solid var(--line);border-top:0;padding-left:.9rem;margin:.4rem 0 0}
.field details .field:last-child{border-bottom:0}
.sample{border-radius:var(--radius);background:var(--code);color:var(--code-text);margin:0 0 1rem;border:1px solid var(--code-line);overflow:hidden}
.sample .title{display:flex;justify-content:space-between;align-items:center;gap:1rem;padding:.35rem .5rem .35rem .9rem;border-bottom:1px solid var(--code-line);font-size:.8rem;min-height:2.4rem;color:#aab0a6}
.sample pre{margin:0;padding:.8rem .9rem;overflow:auto;max-height:28rem;font:.82rem/1.55 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;tab-size:2}
.sample code{background:none;padding:0;font:inherit;color:inherit;overflow-wrap:normal}
.sample button{font:inherit;font-size:.78rem;color:#d5dad0;background:transparent;border:1px solid var(--code-line);border-radius:6px;padding:.2rem .6rem;cursor:pointer;min-height:1.9rem}
.sample button:hover{background:#ffffff14}
.sample button[hidden]{display:none}
.statuses{margin:0;padding:0;list-style:none}
.statuses>li{border-bottom:1px solid var(--line)}
.statuses details>summary{cursor:pointer;padding:.45rem 0;display:flex;gap:.7rem;align-items:baseline;list-style-position:inside}
.statuses .code{font:600 .9rem ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;min-width:2.4rem}
.statuses .code.good{color:var(--good)}.statuses .code.bad{color:var(--bad)}
.statuses .inside{padding:.2rem 0 .8rem 1rem;font-size:.92rem}
table{border-collapse:collapse;width:100%;font-size:.9rem}
.wide{overflow-x:auto}
th,td{text-align:left;vertical-align:top;padding:.45rem .8rem .45rem 0;border-bottom:1px solid var(--line)}
th{font-weight:600;color:var(--soft);font-size:.8rem}
footer{margin-top:4rem;border-top:1px solid var(--line);padding-top:1rem;color:var(--soft);font-size:.85rem}
@media (min-width:60rem){
.page{grid-template-columns:17.5rem minmax(0,1fr)}
nav{border-bottom:0;border-right:1px solid var(--line);height:100vh;padding:1.5rem 1.25rem 3rem}
nav summary{pointer-events:none}nav summary::after{content:none}nav details[open] summary::after{content:none}
main{padding:2.5rem clamp(1.5rem,4vw,4rem) 6rem;max-width:86rem}
}
@media (min-width:80rem){
.columns{grid-template-columns:minmax(0,1fr) minmax(0,30rem);gap:3rem}
.columns>aside{order:0;position:sticky;top:1.5rem;align-self:start;max-height:calc(100vh - 3rem);overflow:auto}
}
`;

/** Copies a sample; without it the page lacks nothing but the buttons. On a phone the menu starts closed. */
export const SCRIPT = `
const menu=document.querySelector('nav details');
const wide=matchMedia('(min-width:60rem)');
const fit=()=>{menu.open=wide.matches};
fit();wide.addEventListener('change',fit);
menu.addEventListener('click',event=>{if(!wide.matches&&event.target.closest('a'))menu.open=false});
for(const button of document.querySelectorAll('.sample button')){
button.hidden=false;
button.addEventListener('click',async()=>{
const text=button.closest('.sample').querySelector('pre').textContent;
try{await navigator.clipboard.writeText(text);button.textContent='Copied'}
catch{button.textContent='Select and copy'}
});
for(const leave of ['pointerleave','blur'])button.addEventListener(leave,()=>{button.textContent='Copy'})
}
`;
