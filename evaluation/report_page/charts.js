// Small charts as inline SVG.
const WIDTH = 520, HEIGHT = 330, LEFT = 52, RIGHT = 16, TOP = 14, BOTTOM = 44;
const MARKS = [
  'M-5,0a5,5 0 1,0 10,0a5,5 0 1,0 -10,0', 'M-4.5,-4.5h9v9h-9z', 'M0,-5.5L5.5,4.5H-5.5z', 'M0,-6L6,0L0,6L-6,0z',
  'M0,5.5L5.5,-4.5H-5.5z', 'M-6,-2h4v-4h4v4h4v4h-4v4h-4v-4h-4z', 'M-6,-3H6V3H-6z', 'M-3,-6H3V6H-3z',
];
const seriesClass = (i) => `series s${i % 8}`;
const markOf = (i, attributes) => shape('path', { class: 'mark', d: MARKS[(i + Math.floor(i / 8)) % 8], ...attributes });

function ticks(low, high) {
  const raw = (high - low) / 5 || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw - 1e-12);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) found.push(Number((k * step).toPrecision(12)));
  return found;
}

function frame(label, x, y, xTicks, yTicks, xText, yText, xName = String) {
  const right = WIDTH - RIGHT, bottom = HEIGHT - BOTTOM;
  return shape('svg', { class: 'chart', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', 'aria-label': label },
    yTicks.map((v) => [shape('line', { class: 'grid', x1: LEFT, x2: right, y1: y(v), y2: y(v) }),
      shape('text', { x: LEFT - 6, y: y(v) + 4, 'text-anchor': 'end' }, String(v))]),
    xTicks.map((v) => [shape('line', { class: 'grid', x1: x(v), x2: x(v), y1: TOP, y2: bottom }),
      shape('text', { x: x(v), y: bottom + 16, 'text-anchor': 'middle' }, xName(v))]),
    shape('line', { class: 'axis', x1: LEFT, x2: right, y1: bottom, y2: bottom }),
    shape('line', { class: 'axis', x1: LEFT, x2: LEFT, y1: TOP, y2: bottom }),
    shape('text', { x: (LEFT + right) / 2, y: HEIGHT - 8, 'text-anchor': 'middle' }, xText),
    shape('text', { transform: `translate(14 ${(TOP + bottom) / 2}) rotate(-90)`, 'text-anchor': 'middle' }, yText));
}

const scale = (low, high, from, to) => (v) => from + ((v - low) / (high - low || 1)) * (to - from);
const across = (low, high) => scale(low, high, LEFT, WIDTH - RIGHT);
const upwards = (low, high) => scale(low, high, HEIGHT - BOTTOM, TOP);
const whisker = (x1, y1, x2, y2) => shape('line', { x1, y1, x2, y2 });

function legend(names, kinds = []) {
  const sign = (i) => (kinds[i] && kinds[i] !== 'marks'
    ? [shape('line', { x1: -7, x2: 7, y1: 0, y2: 0 }), kinds[i] === 'dots' && shape('circle', { class: 'mark', r: 3 })] : markOf(i));
  return el('ul', { class: 'legend' }, names.map((name, i) => el('li', { class: seriesClass(i) },
    shape('svg', { viewBox: '-7 -7 14 14', 'aria-hidden': 'true' }, sign(i)), el('span', {}, name))));
}

const figureOf = (caption, svg, names, note, kinds) => el('figure', {}, el('figcaption', {}, caption), svg, legend(names, kinds),
  note && el('p', { class: 'note' }, note));

function scoreChart(runs, label) {
  const most = Math.max(0.5, ...runs.map((run) => run.retrievals.high ?? run.retrievals.value)) * 1.06;
  const ends = runs.flatMap((run) => [run.score.low ?? run.score.value, run.score.high ?? run.score.value]).map((v) => 100 * v);
  const low = Math.max(0, Math.floor((Math.min(...ends) - 3) / 10) * 10), high = Math.min(100, Math.ceil((Math.max(...ends) + 3) / 10) * 10);
  const x = across(0, most), y = upwards(low, high);
  const svg = frame(`${label} against retrievals a question, one point a run`, x, y, ticks(0, most), ticks(low, high),
    'retrievals a question', `${label} (%)`);
  runs.forEach((run, i) => {
    const px = x(run.retrievals.value), py = y(100 * run.score.value);
    const bounds = (item, f, k) => (item.low === undefined ? null : [f(k * item.low), f(k * item.high)]);
    const across_ = bounds(run.retrievals, x, 1), up = bounds(run.score, y, 100);
    const text = `${run.label}: ${label} ${number(100 * run.score.value, 1)} %, ${number(run.retrievals.value, 2)} retrievals`;
    svg.append(shape('g', { class: seriesClass(i) }, across_ && whisker(across_[0], py, across_[1], py), up && whisker(px, up[0], px, up[1]),
      shape('g', { transform: `translate(${px} ${py})` }, markOf(i), shape('title', {}, text))));
  });
  return figureOf(`${label} against retrievals`, svg, runs.map((run) => run.label), 'Means over the common questions, with 95 % intervals.');
}

function reliabilityChart(curves) {
  const x = across(0, 1), y = upwards(0, 1), marks = [0, 0.2, 0.4, 0.6, 0.8, 1];
  const svg = frame('Reliability: confidence of the final answer against the share that is right', x, y, marks, marks,
    'confidence of the answer', 'share right');
  svg.append(shape('line', { class: 'diagonal', x1: x(0), y1: y(0), x2: x(1), y2: y(1) }));
  curves.forEach((curve, i) => {
    const points = curve.bins.map((bin) => [x(bin.confidence), y(bin.right.value)]);
    svg.append(shape('g', { class: seriesClass(i) },
      points.length > 1 && shape('path', { class: 'line', d: `M${points.map((p) => p.join(',')).join('L')}` }),
      curve.bins.map((bin, k) => [whisker(points[k][0], y(bin.right.low), points[k][0], y(bin.right.high)),
        shape('g', { transform: `translate(${points[k][0]} ${points[k][1]})` }, markOf(i), shape('title', {},
          `${curve.name}, confidence ${bin.low} to ${bin.high}: ${number(bin.right.value, 2)} right of ${bin.right.n}`))])));
  });
  const errors = curves.filter((curve) => curve.error !== undefined).map((curve) => `${curve.name} ${number(curve.error, 2)}`);
  return figureOf('Reliability', svg, curves.map((curve) => curve.name),
    errors.length ? `Confidence is the geometric mean of the tokens' probabilities. Expected calibration error: ${errors.join(', ')}.`
      : 'No run has the confidence of its answers.');
}

function hopsChart(groups, names) {
  const ends = groups.flatMap((group) => Object.values(group.retrievals)).map((item) => item.high ?? item.value);
  const most = Math.max(1, ...ends) * 1.05, x = across(-0.5, groups.length - 0.5), y = upwards(0, most);
  const svg = frame('Retrievals a question by the hops that it needs', x, y, groups.map((_, i) => i), ticks(0, most),
    'hops of the question', 'retrievals', (i) => `${groups[i].hops} (n = ${groups[i].n})`);
  names.forEach((name, i) => {
    const shift = names.length > 1 ? (i / (names.length - 1) - 0.5) * 0.5 : 0;
    svg.append(shape('g', { class: seriesClass(i) }, groups.map((group, k) => {
      const item = group.retrievals[name], px = x(k + shift), py = y(item.value);
      return [item.low !== undefined && whisker(px, y(item.low), px, y(item.high)),
        shape('g', { transform: `translate(${px} ${py})` }, markOf(i),
          shape('title', {}, `${name}, ${group.hops} hops: ${number(item.value, 2)} retrievals`))];
    })));
  });
  return figureOf('Retrievals by hop count', svg, names, 'Means with 95 % intervals.');
}

function curveChart(chart) {
  const points = chart.series.flatMap((series) => series.points), scores = points.map((point) => 100 * point.score);
  const most = Math.max(0.5, ...points.map((point) => point.retrievals)) * 1.06;
  const low = Math.max(0, Math.floor((Math.min(...scores) - 2) / 5) * 5), high = Math.min(105, Math.ceil((Math.max(...scores) + 2) / 5) * 5);
  const x = across(0, most), y = upwards(low, high);
  const svg = frame(`${chart.title}; ${chart.series.map((series) => series.name).join(', ')}`, x, y, ticks(0, most), ticks(low, high),
    'retrievals a question', `${chart.label} (%)`);
  chart.series.forEach((series, i) => {
    const places = series.points.map((point) => [x(point.retrievals), y(100 * point.score)]);
    const told = (point) => [`${series.name}: ${chart.label} ${number(100 * point.score, 1)} %, ${number(point.retrievals, 2)} retrievals`,
      point.text].filter(Boolean).join('; ');
    svg.append(shape('g', { class: seriesClass(i), 'data-kind': series.kind },
      series.kind !== 'marks' && places.length > 1 && shape('path', { class: 'line', d: `M${places.map((p) => p.join(',')).join('L')}` }),
      (series.kind !== 'line' || places.length === 1) && series.points.map((point, k) => (series.kind === 'marks'
        ? shape('g', { transform: `translate(${places[k][0]} ${places[k][1]})` }, markOf(i), shape('title', {}, told(point)))
        : shape('circle', { class: 'mark', cx: places[k][0], cy: places[k][1], r: 3 }, shape('title', {}, told(point)))))));
  });
  return figureOf(chart.title, svg, chart.series.map((series) => series.name), (chart.notes || []).join(' '), chart.series.map((series) => series.kind));
}
