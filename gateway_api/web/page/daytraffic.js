// The traffic of the last day, which the service keeps.

import {Chart} from './chart.js';
import {byId, element} from './elements.js';
import {shown} from './panel.js';
import {Poll} from './poll.js';
import {bits, trafficSince} from './traffic.js';

const DAY = 86_400, STEP = 600, SECONDS = 60;

/** Builds its panel below that of the traffic now. */
export function dayTraffic(api) {
  const place = element('div', {id: 'day-chart', class: 'chart', role: 'img', 'aria-label': 'Traffic of all trunks in the last 24 hours'});
  const title = element('h2', {id: 'day-title'}, 'Traffic ', element('small', {text: 'all trunks, last 24 hours'}));
  const problem = element('p', {id: 'day-problem', class: 'problem', role: 'alert', hidden: true});
  byId('traffic-chart').closest('.pair').after(element('section', {class: 'panel', 'aria-labelledby': 'day-title'}, title, place, problem));
  const chart = new Chart(place, {span: DAY, step: STEP, format: bits, least: 1000, names: ['down', 'up']});
  new Poll(SECONDS, () => shown('day-problem', async () => {
    const samples = await trafficSince(api, DAY, STEP);
    chart.clear();
    chart.fill(samples);
    chart.push(null);
  }), ['overview']);
}
