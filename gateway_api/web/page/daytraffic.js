// The traffic of the last day, which the service keeps.

import {Chart} from './chart.js';
import {shown} from './panel.js';
import {Poll} from './poll.js';
import {chartPlace, panel} from './section.js';
import {bits, trafficSince} from './traffic.js';

const DAY = 86_400, STEP = 600, SECONDS = 60;

/** Its panel. */
export function dayTraffic(api) {
  const place = chartPlace('day', 'Traffic of all trunks in the last 24 hours');
  const made = panel('day', 'Traffic', [place], {note: 'all trunks, last 24 hours'});
  const chart = new Chart(place, {span: DAY, step: STEP, format: bits, least: 1000, names: ['down', 'up']});
  new Poll(SECONDS, () => shown('day-problem', async () => {
    const samples = await trafficSince(api, DAY, STEP);
    chart.clear();
    chart.fill(samples);
    chart.push(null);
  }), ['overview']);
  return made;
}
