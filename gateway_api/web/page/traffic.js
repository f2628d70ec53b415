// What goes through the trunks, from their counters.

import {Chart} from './chart.js';
import {byId, write} from './elements.js';
import {scaled} from './format.js';
import {shown} from './panel.js';
import {Poll} from './poll.js';

const SECONDS = 2, SAMPLES = 120;
// Trunks stand before the VLANs and sessions, of which there are as many as there are subscribers.
const FIRST = 32;

const bits = number => scaled(number, 'bit/s');

export class Traffic {
  #before = null;
  // Seconds for which the core ran at the last sample.
  #uptime = 0;

  constructor(api) {
    this.chart = new Chart(byId('traffic-chart'), {length: SAMPLES, format: bits, least: 1000});
    new Poll(SECONDS, () => shown('traffic-problem', async () => {
      const {interfaces} = await api.poll('/interfaces', {limit: FIRST});
      const at = performance.now() / 1000;
      // After the counters: a core that was restarted between the two has begun counting anew.
      const {uptime_seconds: uptime} = await api.poll('/system/health');
      if (this.#restarted(uptime)) return;
      this.#take(interfaces.filter(({type}) => type === 'trunk'), at);
    }), ['overview']);
  }

  /** Whether the core was restarted since the last sample: then its counters can't be compared. */
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
    // After a pause it would be the mean of all of it.
    if (!before || at - before.at > 5 * SECONDS) return;
    const rates = trunks.filter(({name}) => before.stats.has(name)).map(({name, stats}) => {
      const last = before.stats.get(name), seconds = at - before.at;
      // A counter that went back has begun anew.
      const rate = field => Math.max(0, 8 * (stats[field] - last[field]) / seconds);
      // Seen from the gateway: what a trunk sends goes down to the subscribers.
      return {name, down: rate('tx_bytes'), up: rate('rx_bytes')};
    });
    const sum = field => rates.reduce((total, rate) => total + rate[field], 0);
    const down = sum('down'), up = sum('up');
    this.chart.push({up: down, down: up});
    for (const id of ['downstream', 'down-now']) write(id, bits(down));
    for (const id of ['upstream', 'up-now']) write(id, bits(up));
    write('trunks', rates.map(rate => `${rate.name}: ${bits(rate.down)} down, ${bits(rate.up)} up`).join(' · '));
  }
}
