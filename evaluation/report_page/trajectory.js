// One trajectory, drawn when it is chosen.
const PLACE = '{question}';
const STOPPED = { finished: 'nothing more to ask', max_hops: 'the limit on hops', repeated: 'the next sub-question was asked before',
  empty: 'the LM wrote nothing', no_plan: 'the plan was carried out, or none could be read', context: 'no room for more passages',
  confident: 'an answer to the whole question was sure enough' };
const STAGES = { solve: 'Solve', recompose: 'Re-Compose', resolve: 'Re-Solve', redecompose: 'Re-Decompose' };
const VERDICTS = { on_topic: 'good', off_topic: 'bad' };

const textOf = (record, text) => (text ?? '').split(PLACE).join(DATA.questions[record.id]?.question ?? PLACE);
const titleOf = (record) => DATA.questions[record.id]?.question ?? record.id;
const searches = (record) => `${record.cost.retrievals} ${record.cost.retrievals === 1 ? 'retrieval' : 'retrievals'}`;
const isWrong = (record) => record.status === 'ok' && !record.scores.em;

// Splits a text at the terms and marks them; the terms are compared as whole words, whatever their case.
function marked(text, terms) {
  const known = new Map();
  for (const [kind, list] of terms) {
    for (const term of list) {
      const key = term.trim().toLowerCase();
      if (key.length > 1 && key !== 'yes' && key !== 'no' && !known.has(key)) known.set(key, kind);
    }
  }
  if (!known.size) return [text];
  const escaped = [...known.keys()].sort((a, b) => b.length - a.length).map((term) => term.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&'));
  const pattern = new RegExp(`(?<![\\p{L}\\p{N}])(?:${escaped.join('|')})(?![\\p{L}\\p{N}])`, 'giu');
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(pattern)) {
    parts.push(text.slice(end, match.index));
    const kind = known.get(match[0].toLowerCase()) ?? 'given';
    parts.push(el('mark', { class: kind, title: kind === 'gold' ? 'gold answer' : 'answer given here' }, match[0]));
    end = match.index + match[0].length;
  }
  return [...parts, text.slice(end)];
}

function confidenceBar(confidence, tau) {
  if (!confidence) return el('span', { class: 'faint' }, ' no confidence');
  const mean = Math.exp(confidence.mean);
  const least = confidence.minimum === undefined ? '' : `, least certain token ${number(Math.exp(confidence.minimum), 2)}`;
  const text = `confidence ${number(mean, 2)} (${number(confidence.mean, 2)} nats)${least}`;
  const inner = el('i');
  inner.style.width = `${100 * Math.min(1, mean)}%`;
  const bar = el('span', { class: 'bar', role: 'img', 'aria-label': text }, inner);
  if (tau !== undefined) {
    const tick = el('b', { title: `tau ${tau}` });
    tick.style.left = `${Math.min(98, 100 * Math.exp(tau))}%`;
    bar.append(tick);
  }
  return el('span', {}, bar, el('span', { class: 'faint' }, text));
}

function decision(hop, run) {
  const mean = hop.confidence?.mean, tau = run.tau;
  const compared = mean === undefined || tau === undefined ? '' : `: ${number(mean, 2)} nats, ${mean >= tau ? 'at least' : 'below'} tau ${number(tau, 2)}`;
  if (hop.source === 'already_read') return ['read again', `from passages that an earlier hop found${compared}`];
  if (hop.source === 'calculator') return ['calculated', ': from earlier answers'];
  if (hop.source === 'memory') return ['kept from memory', run.gate === 'never' ? ': this gate never searches' : compared];
  if (run.gate === 'always') return ['searched', ': this gate always does'];
  if (hop.draft === undefined) return ['searched', ': there was no draft'];
  if (mean !== undefined && tau !== undefined && mean >= tau) return ['searched', `${compared}, yet not kept (such as a draft that repeats the sub-question)`];
  return ['searched', compared || ': the draft was not kept'];
}

function passageOf(item, rank, terms, supporting, open) {
  const known = DATA.passages[item.id];
  const head = [`${rank}. `, known ? known[0] || item.id : item.id, ' ',
    el('span', { class: 'faint' }, known ? `id ${item.id}` : '', item.score === undefined ? '' : ` score ${number(item.score, 2)}`),
    supporting.includes(item.id) && el('span', { class: 'badge good' }, 'supporting')];
  if (!known) return el('p', {}, head, !DATA.joined.passages ? '' : el('span', { class: 'faint' }, ' (text not found)'));
  return el('details', { open }, el('summary', {}, head), el('p', {}, marked(known[1], terms)));
}

function hopOf(hop, i, record, run, gold, supporting) {
  const [did, why] = decision(hop, run);
  const terms = [['gold', gold], ['given', [textOf(record, hop.answer)]]];
  return el('article', { class: 'hop', 'aria-label': `Hop ${i + 1}` },
    el('h4', {}, hop.whole ? `The whole question, before any sub-question` : `Hop ${i + 1}: ${textOf(record, hop.sub_question)}`),
    hop.draft !== undefined && el('p', {}, el('span', { class: 'label' }, 'Draft'), textOf(record, hop.draft), confidenceBar(hop.confidence, run.tau)),
    el('p', {}, el('span', { class: 'label' }, 'Decision'), el('strong', { class: hop.source === 'search' ? 'warn' : 'good' }, did), why),
    hop.query !== undefined && el('p', {}, el('span', { class: 'label' }, 'Query'), textOf(record, hop.query)),
    hop.passages.map((item, k) => passageOf(item, k + 1, terms, supporting, k === 0)),
    el('p', {}, el('span', { class: 'label' }, 'Answer'), el('strong', {}, textOf(record, hop.answer) || '(none)'),
      hop.source !== 'memory' && confidenceBar(hop.answer_confidence)));
}

function badges(record) {
  const { scores } = record;
  if (record.status !== 'ok') return el('div', { class: 'badges' }, el('span', { class: 'badge bad' }, 'failed'));
  return el('div', { class: 'badges' },
    el('span', { class: `badge ${scores.em ? 'good' : 'bad'}` }, scores.em ? 'exact match' : 'wrong'),
    el('span', { class: 'badge' }, `F1 ${number(scores.f1, 2)}`),
    el('span', { class: 'badge' }, `cover EM ${scores.cover_em ? 'yes' : 'no'}`),
    scores.off_topic && el('span', { class: 'badge warn' }, 'off-topic'),
    scores.retrieval_recall !== undefined && el('span', { class: 'badge' }, `retrieval recall ${number(scores.retrieval_recall, 2)}`),
    record.hops !== undefined && el('span', { class: 'badge' }, `${record.hops} hops`),
    record.type !== undefined && el('span', { class: 'badge' }, record.type),
    record.trajectory?.revisions.length > 0 && el('span', { class: 'badge warn' }, `attempts at an answer: ${record.trajectory.revisions.length}`),
    record.attempts > 1 && el('span', { class: 'badge' }, `calls of the program: ${record.attempts}`));
}

function verdictOf(attempt) {
  if (attempt.verdict === undefined) return 'not judged';
  const sure = attempt.probability === undefined ? '' : ` (P on-topic ${number(attempt.probability, 2)})`;
  return [el('span', { class: `badge ${VERDICTS[attempt.verdict] ?? 'warn'}` }, attempt.verdict.replace('_', '-')), sure];
}

const AT_STAKE = { memory: 'the whole question from memory', grounded: 'the whole question from its passages', final: 'composed after a hop' };

// Decisions on hops stand with their hops.
function decisionsOf(record) {
  const made = (record.trajectory?.decisions ?? []).filter((decision) => decision.step in AT_STAKE);
  if (!made.length) return null;
  return [el('h3', {}, 'Answers at stake'), made.map((decision) => el('p', {}, el('span', { class: 'label' }, AT_STAKE[decision.step]),
    el('strong', { class: decision.kept ? 'good' : 'warn' }, textOf(record, decision.text) || '(none)'), decision.kept ? ' kept' : ' not sure enough',
    confidenceBar(decision.confidence)))];
}

function attemptsOf(record) {
  const attempts = record.trajectory?.revisions ?? [];
  if (!attempts.length) return null;
  const rowOf = (attempt, i) => {
    const place = [attempt.hop !== undefined && `hop ${attempt.hop}`, attempt.page !== undefined && `page ${attempt.page}`].filter(Boolean).join(', ');
    const titles = attempt.passages.map((id) => DATA.passages[id]?.[0] || id);
    return el('tr', {}, el('th', { scope: 'row' }, `${i + 1}. ${STAGES[attempt.stage] ?? attempt.stage}`, place && ` (${place})`),
      el('td', {}, attempt.sub_questions.map((text, k) => el('p', {}, textOf(record, text), attempt.conclusions[k] && [' ', el('strong', {}, textOf(record, attempt.conclusions[k]))])), titles.length > 0 && el('p', { class: 'faint' }, `read: ${titles.join('; ')}`)),
      el('td', {}, attempt.error ? el('span', { class: 'bad' }, textOf(record, attempt.error)) : textOf(record, attempt.answer) || '(none)',
        attempt.kept && el('span', { class: 'badge good' }, 'kept')), el('td', {}, verdictOf(attempt)),
      el('td', {}, attempt.cost && `${number(attempt.cost.lm_calls, 0)} LM calls, ${searches(attempt)}`));
  };
  const head = ['attempt', 'sub-questions and passages', 'answer', 'verdict', 'cost'].map((text) => el('th', { scope: 'col' }, text));
  return [el('h3', {}, 'Attempts'), el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Attempts' },
    el('table', { class: 'attempts' }, el('thead', {}, el('tr', {}, head)), el('tbody', {}, attempts.map(rowOf))))];
}

function costOf(record) {
  const cost = record.cost, usd = cost.usd === undefined ? 'unknown' : `$${number(cost.usd, 5)}`;
  const lines = { retrievals: number(cost.retrievals, 0), 'LM calls': `${number(cost.lm_calls, 0)} (${number(cost.cached_calls, 0)} from the cache)`,
    'prompt tokens': `${number(cost.prompt_tokens, 0)} (${number(cost.prefix_tokens, 0)} from the prefix cache)`,
    'completion tokens': number(cost.completion_tokens, 0), 'passages read': number(cost.passages_read, 0),
    seconds: number(cost.seconds, 1), price: usd };
  return [el('h3', {}, 'Cost'), el('dl', {}, Object.entries(lines).map(([name, value]) => [el('dt', {}, name), el('dd', {}, value)]))];
}

function othersOf(record, run, choose) {
  const rows = DATA.runs.filter((other) => other !== run).map((other) => [other, BY_ID.get(other.name).get(record.id)]).filter(([, found]) => found);
  if (!rows.length) return null;
  return [el('h3', {}, 'The same question in other runs'), el('div', { class: 'scroll' }, el('table', {}, el('tbody', {}, rows.map(([other, found]) =>
    el('tr', {}, el('td', {}, el('button', { type: 'button', on: { click: () => choose(other) } }, other.name)),
      el('td', {}, found.status === 'ok' ? textOf(found, found.answer) : 'failed'),
      el('td', { class: found.status === 'ok' && found.scores.em ? 'good' : 'bad' }, found.status !== 'ok' ? '' : found.scores.em ? 'right' : 'wrong'),
      el('td', {}, searches(found)))))))];
}

function trajectoryOf(record, run, choose) {
  const known = DATA.questions[record.id], gold = known?.answers ?? [], supporting = known?.supporting ?? [];
  const path = record.trajectory, answer = textOf(record, record.answer);
  const last = path ? path.passages : [];
  return [
    el('h3', {}, known ? known.question : `Question ${record.id}`),
    el('p', { class: 'faint' }, `id ${record.id} in run ${run.name}`, !known && (DATA.joined.questions ? '; its text was not found' : '; its text was not joined (--data)')),
    el('p', { class: 'answer' }, el('span', { class: 'label' }, 'Answer'), el('strong', { class: record.scores.em ? 'good' : 'bad' }, answer || '(none)'),
      path && confidenceBar(path.answer_confidence)),
    record.answered === false && el('p', {}, el('span', { class: 'label' }, 'Abstained'), `its best guess was: ${textOf(record, record.best_guess) || '(none)'}`),
    gold.length > 0 && el('p', {}, el('span', { class: 'label' }, 'Gold'), gold.join(' / ')),
    badges(record),
    record.error && el('p', { class: 'bad' }, `${record.error.type}: ${record.error.message}`),
    path?.plan && [el('h3', {}, 'Plan'), el('ol', {}, path.plan.map((step) => el('li', {}, textOf(record, step))))],
    path && path.hops.map((hop, i) => hopOf(hop, i, record, run, gold, supporting)),
    last.length > 0 && el('details', { class: 'hop', open: path.hops.length === 0 }, el('summary', {}, `Read with the question: ${last.length} passages`),
      last.map((item, k) => passageOf(item, k + 1, [['gold', gold], ['given', [answer]]], supporting, path.hops.length === 0))),
    path?.stop_reason && el('p', {}, el('span', { class: 'label' }, 'Stopped'), STOPPED[path.stop_reason] ?? path.stop_reason),
    decisionsOf(record), attemptsOf(record),
    !path && record.status === 'ok' && el('p', { class: 'faint' }, 'The run has no trajectory of this question.'),
    costOf(record), othersOf(record, run, choose),
  ];
}
