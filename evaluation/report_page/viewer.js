// The list of questions: only the rows in view exist. Search, filters, keys.
const ROW = 52;

function makeViewer() {
  const list = byId('list'), rows = byId('rows'), detail = byId('detail');
  let run = DATA.runs[0], found = [], at = -1, texts = new Map();
  let wanted; // the question chosen last: filters that hide it for a while do not lose it

  function haystack(record) {
    let text = texts.get(record);
    if (text === undefined) {
      const known = DATA.questions[record.id];
      text = [record.id, known?.question, ...(known?.answers ?? []), textOf(record, record.answer),
        ...(record.trajectory?.hops ?? []).flatMap((hop) => [hop.sub_question, hop.answer])].join('\n').toLowerCase();
      texts.set(record, text);
    }
    return text;
  }

  function passes(record, words) {
    if (byId('wrong').checked && !isWrong(record)) return false;
    if (byId('offtopic').checked && !(record.status === 'ok' && record.scores.off_topic)) return false;
    if (byId('retrieved').checked && !(record.cost.retrievals > 0)) return false;
    if (byId('failed').checked && record.status === 'ok') return false;
    const hops = byId('hops').value, type = byId('type').value;
    if (hops && String(record.hops) !== hops) return false;
    if (type && record.type !== type) return false;
    return words.every((word) => haystack(record).includes(word));
  }

  function rowOf(i) {
    const record = found[i], ok = record.status === 'ok';
    const state = !ok ? 'failed' : record.scores.em ? 'right' : record.scores.off_topic ? 'wrong, off-topic' : 'wrong';
    const row = el('div', { class: 'row', role: 'option', id: `row-${i}`, 'aria-selected': i === at ? 'true' : 'false', 'aria-posinset': i + 1,
      'aria-setsize': found.length, on: { click: () => pick(i) } },
      el('div', {}, titleOf(record)),
      el('div', { class: 'small' }, el('span', { class: ok && record.scores.em ? 'good' : 'bad' }, state), ` · ${searches(record)} · `,
        ok ? textOf(record, record.answer) : record.error?.type ?? ''));
    row.style.top = `${i * ROW}px`;
    return row;
  }

  function draw() {
    const first = Math.max(0, Math.floor(list.scrollTop / ROW) - 4);
    const last = Math.min(found.length, first + Math.ceil((list.clientHeight || 600) / ROW) + 9);
    const drawn = [];
    for (let i = first; i < last; i++) drawn.push(rowOf(i));
    rows.replaceChildren(...drawn);
    if (at >= first && at < last) list.setAttribute('aria-activedescendant', `row-${at}`);
    else list.removeAttribute('aria-activedescendant');
  }

  function select(i) {
    at = found.length ? Math.max(0, Math.min(found.length - 1, i)) : -1;
    if (at >= 0) {
      const top = at * ROW;
      if (top < list.scrollTop) list.scrollTop = top;
      else if (top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW - list.clientHeight;
      detail.replaceChildren(...fragment(trajectoryOf(found[at], run, (other) => { wanted = found[at].id; choose(other); })));
    } else detail.replaceChildren(el('p', { class: 'faint' }, 'No question passes the filters.'));
    detail.scrollTop = 0;
    draw();
  }

  function pick(i) {
    select(i);
    wanted = found[at]?.id ?? wanted;
  }

  const fragment = (parts) => [...el('div', {}, parts).childNodes];

  function filter() {
    const words = byId('search').value.toLowerCase().split(/\s+/).filter(Boolean);
    found = run.records.filter((record) => passes(record, words));
    byId('count').textContent = `${number(found.length, 0)} of ${number(run.records.length, 0)} questions`;
    rows.style.height = `${found.length * ROW}px`;
    const place = found.findIndex((record) => record.id === wanted);
    if (place < 0) list.scrollTop = 0;
    select(Math.max(0, place));
  }

  function choices(id, values) {
    const before = byId(id).value;
    byId(id).replaceChildren(el('option', { value: '' }, 'all'), ...values.map((value) => el('option', { value }, value)));
    byId(id).value = values.map(String).includes(before) ? before : '';
    byId(id).disabled = !values.length;
  }

  function choose(other) {
    run = other;
    texts = new Map();
    byId('run').value = String(DATA.runs.indexOf(run));
    const known = (name) => [...new Set(run.records.map((record) => record[name]).filter((value) => value !== undefined))].sort();
    choices('hops', known('hops').sort((a, b) => a - b));
    choices('type', known('type'));
    filter();
  }

  byId('run').append(...DATA.runs.map((other, i) => el('option', { value: i }, other.name)));
  byId('run').addEventListener('change', () => choose(DATA.runs[Number(byId('run').value)]));
  byId('search').addEventListener('input', filter);
  for (const id of ['hops', 'type', 'wrong', 'offtopic', 'retrieved', 'failed']) byId(id).addEventListener('change', filter);
  byId('filters').addEventListener('submit', (event) => event.preventDefault());
  list.addEventListener('scroll', draw, { passive: true });
  window.addEventListener('resize', draw);
  list.addEventListener('keydown', (event) => {
    const page = Math.max(1, Math.floor(list.clientHeight / ROW) - 1);
    const moves = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: found.length - 1 };
    if (event.key in moves && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); pick(moves[event.key]); }
  });
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const writing = event.target.closest?.('input[type="search"], select, textarea');
    if (event.key === 'Escape' && (writing || detail.contains(event.target))) list.focus();
    if (writing) return;
    if (event.key === '/') { event.preventDefault(); byId('search').focus(); byId('search').select(); }
    if (event.key === 'j') pick(at + 1);
    if (event.key === 'k') pick(at - 1);
  });
  choose(run);
}
