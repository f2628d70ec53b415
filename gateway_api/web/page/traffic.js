// The traffic of the trunks, from their counters.

import {Chart} from './chart.js';
import {element, write} from './elements.js';
import {scaled} from './format.js';
import {shown} from './panel.js';
import {Poll} from './poll.js';
import {chartPlace, legend, panel} from './section.js';

const SECONDS = 2, SAMPLES = 120;
// The service keeps a sample for each ten seconds.
const KEPT = 10;
const DAY = 86_400, DAY_STEP = 600, DAY_SECONDS = 60;
// The list has the trunks first, before all VLANs and sessions.
const FIRST = 32;

const bits = number => scaled(number, 'bit/s');

/** What the service has kept of the last seconds: the mean of each step, as samples of a chart. */
async function trafficSince(api, seconds, step) {
  const {samples} = await api.poll('/interfaces/traffic', {since: Math.floor(api.now() - seconds), step});
  const ahead = api.now() - Date.now() / 1000;
  return samples.map(({at, down_bps, up_bps}) => ({at: at - ahead, up: down_bps, down: up_bps}));
}

/** The panel of the last four minutes. */
export const traffic = api => new Traffic(api).panel;

class Traffic {
  #before = null;
  // The core's uptime in seconds at the last sample.
  #uptime = 0;
  // Until then, the newest sample that the service has kept is the figure.
  #isMeasured = false;

  constructor(api) {
    const place = chartPlace('traffic', 'Traffic of all trunks in the last four minutes');
    this.panel = panel('traffic', 'Traffic', [
      legend(['up', 'Downstream', 'down-now'], ['down', 'Upstream', 'up-now']), place, element('p', {class: 'note', id: 'trunks'}),
    ], {note: 'all trunks, last four minutes'});
    this.chart = new Chart(place, {span: SAMPLES * SECONDS, step: SECONDS, format: bits, least: 1000, names: ['down', 'up']});
    new Poll(null, () => shown('traffic-problem', () => this.#fill(api)), ['overview']);
    new Poll(SECONDS, () => shown('traffic-problem', async () => {
      const {interfaces} = await api.poll('/interfaces', {limit: FIRST});
      const at = performance.now() / 1000;
      // After the counters: a restart of the core between the two resets them.
      const {uptime_seconds: uptime} = await api.poll('/system/health');
      if (this.#restarted(uptime)) return;
      this.#take(interfaces.filter(({type}) => type === 'trunk'), at);
    }), ['overview']);
  }

  /** Shows what the service kept of the time before. */
  async #fill(api) {
    const kept = await trafficSince(api, SAMPLES * SECONDS, KEPT);
    if (kept.length && !this.#isMeasured) this.#write(kept.at(-1).up, kept.at(-1).down);
    // One bar for each sample of the page's own.
    this.chart.fill(kept.flatMap(one => Array.from({length: KEPT / SECONDS}, (_, bar) => ({...one, at: one.at + bar * SECONDS}))));
  }

  /** True if the core was restarted since the last sample: its counters began at 0. */
  #restarted(uptime) {
    const restarted = uptime < this.#uptime;
    this.#uptime = uptime;
    if (restarted) {
      this.#before = null;
      this.chart.push(null);
    }
    return restarted;
  }

  #take(trunks, at) {
    const before = this.#before;
    this.#before = {at, stats: new Map(trunks.map(trunk => [trunk.name, trunk.stats]))};
    // After a pause it would be the mean of the whole pause.
    if (!before || at - before.at > 5 * SECONDS) return;
    const rates = trunks.filter(({name}) => before.stats.has(name)).map(({name, stats}) => {
      const last = before.stats.get(name), seconds = at - before.at;
      // A counter that went back was reset.
      const rate = field => Math.max(0, 8 * (stats[field] - last[field]) / seconds);
      // Counters of the gateway: a trunk transmits downstream.
      return {name, down: rate('tx_bytes'), up: rate('rx_bytes')};
    });
    const sum = field => rates.reduce((total, rate) => total + rate[field], 0);
    const down = sum('down'), up = sum('up');
    this.chart.push({up: down, down: up});
    this.#isMeasured = true;
    this.#write(down, up);
    write('trunks', rates.map(rate => `${rate.name}: ${bits(rate.down)} down, ${bits(rate.up)} up`).join(' · '));
  }

  #write(down, up) {
    for (const id of ['downstream', 'down-now']) write(id, bits(down));
    for (const id of ['upstream', 'up-now']) write(id, bits(up));
  }
}

/** The panel of the last day, which the service keeps. */
export function dayTraffic(api) {
  const place = chartPlace('day', 'Traffic of all trunks in the last 24 hours');
  const made = panel('day', 'Traffic', [place], {note: 'all trunks, last 24 hours'});
  const chart = new Chart(place, {span: DAY, step: DAY_STEP, format: bits, least: 1000, names: ['down', 'up']});
  new Poll(DAY_SECONDS, () => shown('day-problem', async () => {
    const samples = await trafficSince(api, DAY, DAY_STEP);
    chart.clear();
    chart.fill(samples);
    chart.push(null);
  }), ['overview']);
  return made;
}
