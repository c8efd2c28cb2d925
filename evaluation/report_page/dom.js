// Building the page: every text becomes a text node, so no data can become markup.
const SVG = 'http://www.w3.org/2000/svg';

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === 'on') for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    else node.setAttribute(name, value === true ? '' : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child !== undefined && child !== null && child !== false) node.append(child instanceof Node ? child : String(child));
  }
  return node;
}

const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const shape = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
const byId = (id) => document.getElementById(id);
const number = (value, digits) => (value === undefined || value === null ? 'unknown'
  : value.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits }));

function tableOf(table) {
  const head = el('tr', {}, table.columns.map((text) => el('th', { scope: 'col' }, text)));
  const rows = table.rows.map((row) => el('tr', {}, row.map((text, i) => (i ? el('td', {}, text) : el('th', { scope: 'row' }, text)))));
  return [
    el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': table.title },
      el('table', {}, el('thead', {}, head), el('tbody', {}, rows))),
    table.notes.filter(Boolean).map((text) => el('p', { class: 'note' }, text)),
  ];
}
