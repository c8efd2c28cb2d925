// The page: data in, parts on.
const DATA = JSON.parse(byId('data').textContent);
const BY_ID = new Map(DATA.runs.map((run) => [run.name, new Map(run.records.map((record) => [record.id, record]))]));

function theme() {
  const root = document.documentElement, button = byId('theme'), system = window.matchMedia('(prefers-color-scheme: dark)');
  let kept = null;
  // Storage may be forbidden for files; then the choice holds for this visit.
  try { kept = window.localStorage.getItem('hopgate-theme'); } catch { kept = null; }
  const set = (name) => { root.dataset.theme = name; button.textContent = name === 'dark' ? 'Light' : 'Dark'; button.setAttribute('aria-label', `Switch to ${name === 'dark' ? 'light' : 'dark'}`); };
  set(kept === 'dark' || kept === 'light' ? kept : system.matches ? 'dark' : 'light');
  system.addEventListener('change', () => { if (kept === null) set(system.matches ? 'dark' : 'light'); });
  button.addEventListener('click', () => {
    kept = root.dataset.theme === 'dark' ? 'light' : 'dark';
    set(kept);
    try { window.localStorage.setItem('hopgate-theme', kept); } catch { /* see above */ }
  });
}

function plots() {
  const names = DATA.runs.map((run) => run.name);
  const charts = document.querySelector('.charts');
  charts.append(scoreChart(DATA.runs, DATA.metric.label), reliabilityChart(DATA.reliability));
  if (DATA.byHops.length) charts.append(hopsChart(DATA.byHops, names));
  charts.append(...DATA.charts.map(curveChart));
}

function tables() {
  const [first, ...others] = DATA.tables;
  byId('summary').append(...tableOf(first).flat());
  byId('tables').append(...others.map((table) => el('details', {}, el('summary', {}, table.title), tableOf(table))));
}

function made() {
  byId('made').append(...DATA.runs.map((run) => el('details', {}, el('summary', {}, run.name), el('dl', {},
    Object.entries(run.made).map(([name, value]) => [el('dt', {}, name),
      el('dd', {}, value === null ? 'none' : typeof value === 'object' ? JSON.stringify(value) : value)])))));
}

theme();
tables();
plots();
made();
makeViewer();
