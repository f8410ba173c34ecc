// Fills the page from what the process answers, every two seconds while somebody looks. Whatever comes from the database is
// set as text, never as HTML.
'use strict';

const POLL = 2000;
const SLOW_POLL = 30000;
const SPAN = 15 * 60 * 1000;
const byId = (id) => document.getElementById(id);

// --- texts -----------------------------------------------------------------------------------------------------------

// Control and direction characters can make a text look like another: they are written out.
const MISLEADING = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]|[\u{e0000}-\u{e007f}]/gu;
const shown = (text) => String(text).replace(MISLEADING, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);

function el(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// A text that others wrote.
const bdi = (text, whenNone = '–') =>
  text === null || text === undefined || text === '' ? el('span', { class: 'muted' }, whenNone) : el('bdi', { dir: 'auto' }, shown(text));

const count = (n) => (n === null || n === undefined ? '–' : Number(n).toLocaleString('en'));
const plural = (n, one, many) => `${count(n)} ${n === 1 ? one : many || one + 's'}`;

function decimal(n) {
  if (n === 0) return '0';
  if (n < 1) return n.toFixed(2).replace(/0$/, '');
  if (n < 10) return n.toFixed(1).replace(/\.0$/, '');
  return Math.round(n).toLocaleString('en');
}

function bytes(n) {
  if (n === null || n === undefined) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) {
    n /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? n : n.toFixed(n < 10 ? 1 : 0)} ${units[unit]}`;
}

function seconds(s) {
  if (s === null || s === undefined) return '–';
  if (s === 0) return '0 s';
  if (s < 0.01) return `${(s * 1000).toFixed(1)} ms`;
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} d`;
}

const clock = (at) => at.toLocaleTimeString('en-GB');

function time(text) {
  if (!text) return el('span', { class: 'muted' }, '–');
  const at = new Date(text);
  const today = at.toDateString() === new Date().toDateString();
  const words = today ? clock(at) : `${at.toLocaleDateString('en-CA')} ${clock(at).slice(0, 5)}`;
  return el('time', { datetime: text, title: text }, words);
}

// --- asking ----------------------------------------------------------------------------------------------------------

let token = null;

class Refused extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

class Unreachable extends Error {}

async function ask(path, body, shownToken = token) {
  const headers = {};
  if (shownToken) headers.Authorization = `Bearer ${shownToken}`;
  if (body) headers['Content-Type'] = 'application/json';
  const request = {
    method: body ? 'POST' : 'GET',
    headers,
    body: body ? JSON.stringify(body) : undefined,
    cache: 'no-store',
    credentials: 'omit',
    redirect: 'error',
    signal: AbortSignal.timeout(12000),
  };
  let answer;
  let said = null;
  try {
    answer = await fetch(path, request);
    said = JSON.parse(await answer.text());
  } catch {
    if (!answer) throw new Unreachable('walpost does not answer');
  }
  if (!answer.ok) throw new Refused(answer.status, (said && said.message) || `HTTP ${answer.status}`);
  if (said === null) throw new Unreachable('walpost does not answer with JSON');
  return said;
}

// --- state -----------------------------------------------------------------------------------------------------------

const STATES = {
  streaming: ['good', 'Streaming'],
  standby: ['calm', 'Standby: another process has the slot'],
  preparing: ['warn', 'Making the slot'],
  connecting: ['bad', 'Connecting'],
  slot_lost: ['bad', 'The slot is lost'],
  paused: ['warn', 'Paused on request'],
  stopped: ['warn', 'Stopped on request'],
  stopping: ['warn', 'Stopping'],
};

const totals = [];
let waitingLetters = null;

const sum = (numbers) => Object.values(numbers || {}).reduce((all, one) => all + one, 0);

// Records a second, from the answers of the last ten seconds.
function rateNow(status) {
  const at = performance.now();
  const total = sum(status.delivered);
  if (totals.length && total < totals[totals.length - 1].total) totals.length = 0;
  totals.push({ at, total });
  while (totals.length > 2 && at - totals[0].at > 10000) totals.shift();
  const first = totals[0];
  if (at - first.at >= POLL * 0.8) return ((total - first.total) * 1000) / (at - first.at);
  const last = points[points.length - 1];
  return last ? last.rate : null;
}

function renderState(status) {
  const [tone, words] = STATES[status.state] || ['calm', status.state];
  const troubled = !status.ready.ok && tone === 'good';
  byId('pill').className = `pill ${troubled ? 'warn' : tone}`;
  setText('state', troubled ? `${status.state}, not ready` : status.state.replace('_', ' '));
  setText('headline', troubled ? `${words}, but not ready` : words);
  byId('where').replaceChildren('slot ', bdi(status.slot), ' of database ', bdi(status.database), ', publication ', bdi(status.publication));
  document.title = `${status.state.replace('_', ' ')} · ${shown(status.slot)} · walpost`;
  const since = new Date(status.since);
  const took = Math.max(0, (Date.now() - since) / 1000);
  byId('since').replaceChildren('since ', time(status.since), ` (${seconds(Math.round(took))}), ${status.ready.ok ? 'ready' : 'not ready'}`);
  const reasons = [...new Set([status.reason, ...status.ready.reasons].filter(Boolean))];
  fill(byId('reasons'), reasons, () => reasons.map((reason) => el('li', {}, bdi(reason))));
  setText('version', `walpost ${status.version}`);
}

let latency = null;

function renderTiles(status) {
  const tile = (name, big, small, tone) =>
    el('div', { class: tone || null }, el('dt', {}, name), el('dd', {}, el('div', { class: 'big' }, ...[].concat(big)), el('span', { class: 'muted small' }, small)));
  const unit = (words) => el('small', {}, ` ${words}`);
  const rate = rateNow(status);
  const dead = waitingLetters === null ? sum(status.dead_letters) : waitingLetters;
  const parked = status.parked;
  const tiles = [
    tile('Rate now', rate === null ? '–' : [decimal(rate), unit('/s')], `${count(sum(status.delivered))} delivered`),
    tile('Lag', seconds(status.lag_seconds), status.lag_bytes === null ? 'in bytes unknown' : `${bytes(status.lag_bytes)} of log`, status.lag_seconds > 30 ? 'bad' : null),
    tile('Commit to delivery', latency && latency.p50 !== null ? [seconds(latency.p50), unit('p50')] : '–', latency && latency.p95 !== null ? `p95 ${seconds(latency.p95)}, last minute` : 'nothing in the last minute'),
    tile('In flight', [count(status.in_flight.records), unit('records')], status.in_flight.waiting_seconds > 1 ? `oldest waits ${seconds(status.in_flight.waiting_seconds)}` : bytes(status.in_flight.bytes)),
    tile('Oldest unpublished', status.unproven ? seconds(status.unproven.oldest_seconds || 0) : '–', status.unproven ? `${plural(status.unproven.rows, 'row')} not proven` : 'unknown'),
    tile('Dead letters', count(dead), parked ? `${count(parked.events)} parked, ${plural(parked.aggregates, 'aggregate')}` : waitingLetters === null ? 'since the start' : 'waiting', dead > 0 ? 'warn' : null),
  ];
  if (status.reading) {
    tiles.push(tile('Rows before the stream', count(status.reading.rows), status.reading.rows_estimated === null ? status.reading.kind : `of about ${count(status.reading.rows_estimated)}, ${status.reading.kind}`));
  }
  byId('tiles').replaceChildren(...tiles);
}

function renderSlot(status) {
  const server = status.server;
  const facts = [['Confirmed', el('span', { class: 'mono' }, status.confirmed_lsn || '–')]];
  if (server) {
    const tones = { reserved: null, extended: 'warn-text', unreserved: 'bad-text', lost: 'bad-text' };
    facts.push(
      ['End of the log', el('span', { class: 'mono' }, server.wal_lsn)],
      ['Kept by the slot', bytes(server.retained_bytes)],
      ['Before it is lost', server.safe_bytes === null ? el('span', { class: 'muted' }, 'no limit is set') : el('span', {}, bytes(server.safe_bytes), slotMeter(server))],
      ['Time until then', server.lost_in_seconds === null ? el('span', { class: 'muted' }, 'it loses no ground') : el('span', { class: server.lost_in_seconds < 3600 ? 'bad-text' : 'warn-text' }, seconds(server.lost_in_seconds))],
      ['WAL status', el('span', { class: tones[server.wal_status] || null }, server.wal_status || '–')],
      ['Asked', `${seconds(Math.round(server.age_seconds))} ago`],
    );
  } else {
    facts.push(['Server', el('span', { class: 'muted' }, 'not known to this process now')]);
  }
  facts.push(['Reconnects', count(status.reconnects)]);
  byId('slot').replaceChildren(...facts.flatMap(([name, value]) => [el('dt', {}, name), el('dd', {}, value)]));
  const bookmarks = server ? server.bookmarks : [];
  byId('bookmarks').hidden = bookmarks.length === 0;
  fill(byId('bookmarks'), bookmarks, () =>
    bookmarks.length === 0 ? [] : [el('h2', {}, 'Bookmarks'), table(['Slot', 'From', '#Keeps', 'WAL status'], bookmarks.map((mark) => [bdi(mark.slot), el('span', { class: 'mono' }, mark.lsn || 'nothing'), bytes(mark.retained_bytes), mark.wal_status || '–']))],
  );
}

function slotMeter(server) {
  const all = server.retained_bytes + server.safe_bytes;
  if (!(all > 0)) return null;
  const used = server.retained_bytes / all;
  return el('meter', { min: 0, max: 1, low: 0.5, high: 0.8, optimum: 0, value: used.toFixed(3), 'aria-label': `${Math.round(used * 100)} % of what the slot may keep` });
}

const TOPICS_SHOWN = 8;

function renderTopics(status) {
  const topics = Object.entries(status.delivered).sort((a, b) => b[1] - a[1]);
  fill(byId('topics'), topics, () => {
    const facts = topics.slice(0, TOPICS_SHOWN).flatMap(([topic, total]) => [el('dt', {}, bdi(topic)), el('dd', {}, count(total))]);
    const rest = topics.slice(TOPICS_SHOWN);
    if (rest.length) facts.push(el('dt', {}, `${plural(rest.length, 'other')}`), el('dd', {}, count(rest.reduce((all, [, total]) => all + total, 0))));
    return facts.length ? facts : [el('dt', {}, 'nothing yet'), el('dd', {}, '')];
  });
}

function setText(id, text) {
  const element = byId(id);
  if (element.textContent !== text) element.textContent = text;
}

// Makes the children anew when what they show has changed; the focus stays on what has the same name.
function fill(element, data, make) {
  const now = JSON.stringify(data);
  if (element.shownData === now) return;
  element.shownData = now;
  const focused = document.activeElement && element.contains(document.activeElement) ? document.activeElement.dataset.name : null;
  element.replaceChildren(...make());
  if (focused) {
    const again = [...element.querySelectorAll('[data-name]')].find((button) => button.dataset.name === focused);
    if (again) again.focus();
  }
}

// Heads that begin with # are numbers, with ! are short, with ~ are names, and an empty one is for buttons.
function table(heads, rows) {
  const kinds = heads.map((head) => (head === '' ? 'do' : head[0] === '#' ? 'num' : head[0] === '!' ? 'tight' : head[0] === '~' ? 'name' : null));
  const names = heads.map((head) => head.replace(/^[#!~]/, ''));
  const head = el('tr', {}, ...names.map((name, i) => el('th', { scope: 'col', class: kinds[i] }, name || el('span', { class: 'skip' }, 'Actions'))));
  const line = (cells) => el('tr', {}, ...cells.map((cell, i) => el('td', { class: kinds[i], 'data-label': names[i] }, el('div', {}, ...[].concat(cell)))));
  return el('table', {}, el('thead', {}, head), el('tbody', {}, ...rows.map(line)));
}

// --- last records ----------------------------------------------------------------------------------------------------

function renderRecords(records) {
  fill(byId('records'), records, () => {
    if (records.length === 0) return [el('p', { class: 'none' }, 'None since this process started.')];
    const rows = records.map((record) => [time(record.delivered_at), bdi(record.id), bdi(record.type), bdi(record.topic), record.partition === null ? '–' : String(record.partition), record.offset === null ? '–' : count(record.offset), bdi(record.key)]);
    return [table(['!Delivered', 'Id', '~Type', '~Topic', '#Partition', '#Offset', '~Key'], rows)];
  });
}

// --- charts ----------------------------------------------------------------------------------------------------------

let points = [];
const SVG = 'http://www.w3.org/2000/svg';
const perSecond = (n) => `${decimal(n)}/s`;

const CHARTS = [
  { id: 'chart-rate', title: 'Rate', format: perSecond, least: 1, series: [['rate', null]] },
  { id: 'chart-lag', title: 'Lag', format: seconds, least: 0.1, series: [['lag_seconds', null]] },
  { id: 'chart-latency', title: 'Commit to delivery', format: seconds, least: 0.01, series: [['latency_p95', 'p95', 'second'], ['latency_p50', 'p50']] },
];

function svg(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

function niceMax(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}

function drawChart(chart) {
  const figure = byId(chart.id);
  if (!figure.firstChild) prepareChart(chart, figure);
  const { drawing, read } = chart;
  const [width, height] = [drawing.clientWidth || 300, drawing.clientHeight || 150];
  const [left, right, top, bottom] = [46, 8, 8, 20];
  const end = points.length ? points[points.length - 1].at : Date.now();
  const begin = end - SPAN;
  const values = chart.series.flatMap(([name]) => points.map((point) => point[name])).filter((value) => value !== null);
  const most = niceMax(Math.max(chart.least, ...values));
  const x = (at) => left + ((at - begin) / SPAN) * (width - left - right);
  const y = (value) => height - bottom - (value / most) * (height - top - bottom);
  const parts = [];
  for (const part of [0, 0.5, 1]) {
    parts.push(svg('line', { class: 'grid', x1: left, x2: width - right, y1: y(most * part), y2: y(most * part) }));
    parts.push(svg('text', { x: left - 6, y: y(most * part) + 4, 'text-anchor': 'end' }, part === 0 ? '0' : chart.format(most * part)));
  }
  for (const [minutes, anchor] of [[15, 'start'], [10, 'middle'], [5, 'middle'], [0, 'end']]) {
    parts.push(svg('text', { x: x(end - minutes * 60000), y: height - 4, 'text-anchor': anchor }, minutes === 0 ? 'now' : `−${minutes} min`));
  }
  for (const [name, , second] of chart.series) {
    const kind = second || '';
    for (const run of runs(name)) {
      const line = run.map((point) => `${x(point.at).toFixed(1)},${y(point[name]).toFixed(1)}`);
      if (run.length === 1) line.push(`${(x(run[0].at) + 1).toFixed(1)},${y(run[0][name]).toFixed(1)}`);
      const base = (height - bottom).toFixed(1);
      parts.push(svg('path', { class: `area ${kind}`, d: `M${x(run[0].at).toFixed(1)},${base}L${line.join('L')}L${line[line.length - 1].split(',')[0]},${base}Z` }));
      parts.push(svg('path', { class: `line ${kind}`, d: `M${line.join('L')}` }));
    }
  }
  const at = chart.pointed === undefined ? null : nearest(begin + ((chart.pointed - left) / (width - left - right)) * SPAN);
  if (at) parts.push(svg('line', { class: 'cursor', x1: x(at.at), x2: x(at.at), y1: top, y2: height - bottom }));
  drawing.replaceChildren(...parts);
  const last = at || points[points.length - 1];
  const words = chart.series.map(([name, label, second]) => {
    const value = last && last[name] !== null ? chart.format(last[name]) : '–';
    return label ? [el('span', { class: `key ${second || ''}` }), `${label} ${value}  `] : [value];
  });
  read.replaceChildren(...(at ? [`${clock(new Date(at.at))}  `] : []), ...words.flat());
  const peak = values.length ? chart.format(Math.max(...values)) : 'nothing';
  drawing.setAttribute('aria-label', `${chart.title} over the last 15 minutes. Last: ${read.textContent.trim()}. Highest: ${peak}.`);
}

function prepareChart(chart, figure) {
  chart.read = el('span', { class: 'read' });
  figure.append(el('figcaption', {}, el('span', {}, chart.title), chart.read));
  chart.drawing = svg('svg', { role: 'img', focusable: 'false' });
  figure.append(chart.drawing);
  const point = (event) => {
    chart.pointed = event ? event.clientX - chart.drawing.getBoundingClientRect().left : undefined;
    drawChart(chart);
  };
  chart.drawing.addEventListener('pointermove', point);
  chart.drawing.addEventListener('pointerleave', () => point(null));
  new ResizeObserver(() => drawChart(chart)).observe(figure);
}

// Stretches without a gap.
function runs(name) {
  const all = [];
  let run = [];
  points.forEach((point, i) => {
    const gap = point[name] === null || (i > 0 && point.at - points[i - 1].at > 30000);
    if (gap && run.length) {
      all.push(run);
      run = [];
    }
    if (point[name] !== null) run.push(point);
  });
  return run.length ? [...all, run] : all;
}

const nearest = (at) => points.reduce((best, point) => (!best || Math.abs(point.at - at) < Math.abs(best.at - at) ? point : best), null);

async function loadHistory() {
  const last = points.length ? points[points.length - 1].at : 0;
  const history = await ask(`/history?after=${last}`);
  latency = history.latency;
  points = points.concat(history.points).slice(-180);
  CHARTS.forEach(drawChart);
}

// --- dead letters ----------------------------------------------------------------------------------------------------

const letters = { after: 0, next: null, seen: null, askedAt: 0, answer: null, page: 1 };

async function loadLetters() {
  letters.askedAt = performance.now();
  const state = byId('letters-state').value;
  const { after } = letters;
  try {
    const answer = await ask(`/dead-letters?state=${encodeURIComponent(state)}&after=${after}`);
    if (state !== byId('letters-state').value || after !== letters.after) return;
    // What was on a later page is gone.
    if (after > 0 && answer.letters.length === 0) {
      letters.after = 0;
      letters.page = 1;
      return loadLetters();
    }
    renderLetters(answer);
  } catch (error) {
    if (error instanceof Unreachable) return;
    if (!(error instanceof Refused)) throw error;
    const note = [el('p', { class: 'none' }, bdi(error.message))];
    if (error.code === 401) note.push(el('p', {}, button('Show the token', 'unlock', () => decide({ kind: 'unlock' }))));
    byId('letters-note').shownData = null;
    byId('letters-note').replaceChildren(...note);
  }
}

function button(words, name, act, label) {
  const made = el('button', { type: 'button', 'data-name': name, 'aria-label': label });
  made.textContent = words;
  made.addEventListener('click', act);
  return made;
}

const nameOf = (letter) => [letter.aggregate_type, letter.aggregate_id].filter(Boolean).join(' ') || 'no aggregate';
const many = (n) => (n >= 100000 ? `${count(n)} or more` : count(n));

function renderLetters(answer) {
  letters.answer = answer;
  letters.next = answer.next;
  waitingLetters = answer.dead + answer.parked;
  byId('letters-note').shownData = null;
  byId('letters-note').replaceChildren(...(answer.kept ? [] : [el('p', { class: 'none' }, 'There is no table of dead letters. walpost setup makes it.')]));
  setText('letters-sum', answer.kept ? `${many(answer.dead)} dead, ${many(answer.parked)} parked of ${plural(answer.aggregates, 'aggregate')}` : '');
  if (letters.after === 0) {
    fill(byId('aggregates'), answer.parked_aggregates, () => {
      if (answer.parked_aggregates.length === 0) return [];
      const rows = answer.parked_aggregates.map((parked) => {
        const { first } = parked;
        return [
          bdi(nameOf(first)),
          bdi(first.topic),
          [count(parked.letters), parked.replay_requested ? el('span', { class: 'muted' }, ' replaying') : null].filter(Boolean),
          [bdi(first.reason_class), ': ', bdi(first.reason)],
          time(first.first_failed_at),
          actions(`aggregate ${nameOf(first)}`, first, { aggregate_of: first.row }, { all: parked.letters, requested: parked.replay_requested >= parked.letters }),
        ];
      });
      return [el('h3', {}, answer.aggregates > rows.length ? `Parked aggregates: the first ${rows.length} of ${many(answer.aggregates)}` : 'Parked aggregates'), table(['~Aggregate', '~Topic', '#Events', 'Waits behind', '!Since', ''], rows)];
    });
  }
  fill(byId('letters'), answer.letters, () => {
    if (!answer.kept) return [];
    const title = el('h3', {}, 'Letters, the oldest first');
    if (answer.letters.length === 0) return [title, el('p', { class: 'none' }, 'None.')];
    const rows = answer.letters.map((letter) => {
      const open = letter.state === 'dead' || letter.state === 'parked';
      const requested = letter.replay_requested_at !== null;
      return [
        time(letter.first_failed_at),
        [el('span', { class: `tag ${letter.state}` }, letter.state), open && requested ? el('span', { class: 'muted small' }, ' replay requested') : null].filter(Boolean),
        bdi(letter.event_id, 'without id'),
        bdi(letter.event_type),
        bdi(nameOf(letter)),
        bdi(letter.topic, 'none'),
        [bdi(letter.reason_class), ': ', bdi(letter.reason)],
        open ? actions(`event ${letter.event_id || 'without id'}`, letter, { letters: [letter.row] }, { requested }) : '',
      ];
    });
    return [title, table(['!Failed', '!State', 'Event', '~Type', '~Aggregate', '~Topic', 'Reason', ''], rows)];
  });
  byId('pager').hidden = letters.page === 1 && letters.next === null;
  byId('first').disabled = letters.page === 1;
  byId('next').disabled = letters.next === null;
  setText('page-of', `page ${letters.page}`);
}

function actions(name, letter, body, { all = 1, requested }) {
  const key = JSON.stringify(body);
  const act = (kind) => () => decide({ kind, name, letter, body, all });
  const replay = button('Replay', `replay ${key}`, act('replay'), `Replay ${shown(name)}`);
  replay.disabled = requested || letter.topic === null;
  if (letter.topic === null) replay.title = 'It has no topic: insert the event again, mended, and discard this one';
  return [replay, button('Discard', `discard ${key}`, act('discard'), `Discard ${shown(name)}`)];
}

// --- decisions -------------------------------------------------------------------------------------------------------

let pending = null;

function decide(decision) {
  pending = decision;
  const { kind, name, letter, all } = decision;
  const canChange = kind === 'unlock' || (letters.answer && letters.answer.changes === 'token');
  const texts = {
    unlock: ['Show the token', 'What rows say is told to whoever has the token.', 'Go on'],
    replay: [`Replay ${all > 1 ? plural(all, 'event') : 'this event'}?`, ['It is sent again by the walpost that streams. What is parked with it goes with it, in order', letter && letter.later_delivered ? '; later events of its aggregate are delivered already.' : '.'].join(''), 'Replay'],
    discard: [`Discard ${all > 1 ? plural(all, 'event') : 'this event'}?`, 'It is never sent. What is parked behind it stays.', 'Discard'],
  };
  const [title, what, yes] = texts[kind];
  setText('decide-title', title);
  byId('decide-what').replaceChildren(...(name ? [bdi(name), el('br'), what] : [what]));
  byId('decide-yes').textContent = yes;
  byId('decide-yes').className = kind === 'discard' ? 'strong danger' : 'strong';
  byId('decide-yes').hidden = !canChange;
  byId('decide-yes').disabled = false;
  byId('decide-token').hidden = !canChange || (token !== null && kind !== 'unlock');
  byId('decide-command').hidden = canChange;
  byId('token').value = '';
  setText('decide-error', '');
  const command = canChange ? null : commandFor(decision);
  setText('command', command || 'walpost -c walpost.toml dead-letter list');
  byId('decide-copy').hidden = canChange || !command;
  byId('decide-copy').textContent = 'Copy';
  byId('decide').showModal();
  if (canChange && token === null) byId('token').focus();
}

// What a shell reads as nothing but this. A name that does not belong on a terminal gives none.
function commandFor({ kind, letter, body }) {
  const [option, value] = body.letters ? ['--id', letter.event_id] : ['--aggregate', letter.aggregate_id];
  if (!value || value.length >= 300 || !/^[\x20-\x7e]+$/.test(value)) return null;
  return `walpost -c walpost.toml dead-letter ${kind} ${option}='${value.replace(/'/g, `'\\''`)}'`;
}

async function decided(event) {
  event.preventDefault();
  const { kind, body } = pending;
  const shownToken = byId('decide-token').hidden ? token : byId('token').value.trim();
  if (!shownToken) {
    setText('decide-error', 'The token is missing.');
    return;
  }
  byId('decide-yes').disabled = true;
  try {
    if (kind === 'unlock') await ask('/records', null, shownToken);
    else await ask(`/dead-letters/${kind}`, body, shownToken);
    token = shownToken;
    byId('decide').close();
    await Promise.all([loadLetters(), poll(true)]);
  } catch (error) {
    if (error.code === 401) {
      token = null;
      byId('decide-token').hidden = false;
      setText('decide-error', 'walpost does not know this token.');
      byId('token').select();
      byId('token').focus();
    } else {
      setText('decide-error', shown(error.message));
    }
  } finally {
    byId('decide-yes').disabled = false;
  }
}

// --- the clock -------------------------------------------------------------------------------------------------------

let heard = null;
let turns = 0;
let polling = false;

async function poll(now) {
  if (polling || (document.hidden && !now)) return;
  polling = true;
  try {
    const [status, records] = await Promise.all([ask('/status'), ask('/records').catch(notForUs)]);
    if (turns % 3 === 0) await loadHistory();
    turns += 1;
    renderState(status);
    renderTiles(status);
    renderSlot(status);
    renderTopics(status);
    if (records) renderRecords(records.records);
    heard = new Date();
    fresh(true);
    const seen = JSON.stringify([status.dead_letters, status.parked, status.slot]);
    if (seen !== letters.seen || performance.now() - letters.askedAt > SLOW_POLL) {
      letters.seen = seen;
      loadLetters();
    }
  } catch (error) {
    if (!(error instanceof Refused || error instanceof Unreachable)) throw error;
    fresh(false, error);
  } finally {
    polling = false;
  }
}

function notForUs(error) {
  if (!(error instanceof Refused)) throw error;
  const element = byId('records');
  element.shownData = null;
  element.replaceChildren(el('p', { class: 'none' }, bdi(error.message)));
  return null;
}

function fresh(is, error) {
  document.body.classList.toggle('stale', !is && heard !== null);
  const banner = byId('banner');
  if (is) {
    banner.hidden = true;
    banner.textContent = '';
    return;
  }
  const why = error instanceof Refused ? ` (${shown(error.message)})` : '';
  const words = heard ? `No answer from walpost since ${clock(heard)}${why}. What is below is from then.` : `No answer from walpost yet${why}.`;
  if (banner.textContent !== words) banner.textContent = words;
  banner.hidden = false;
  if (heard) {
    byId('pill').className = 'pill';
    setText('state', 'no answer');
  }
}

byId('letters-state').addEventListener('change', () => turnTo(0, 1));
byId('first').addEventListener('click', () => turnTo(0, 1));
byId('next').addEventListener('click', () => letters.next !== null && turnTo(letters.next, letters.page + 1));

function turnTo(after, page) {
  letters.after = after;
  letters.page = page;
  loadLetters();
}

byId('decide-form').addEventListener('submit', decided);
byId('decide-no').addEventListener('click', () => byId('decide').close());
byId('decide').addEventListener('close', () => {
  byId('token').value = '';
});
byId('decide-copy').addEventListener('click', async () => {
  const command = byId('command');
  getSelection().selectAllChildren(command);
  try {
    await navigator.clipboard.writeText(command.textContent);
    byId('decide-copy').textContent = 'Copied';
  } catch {
    byId('decide-copy').textContent = 'Selected';
  }
});
document.addEventListener('visibilitychange', () => poll(false));
CHARTS.forEach(drawChart);
poll(true);
setInterval(() => poll(false), POLL);
