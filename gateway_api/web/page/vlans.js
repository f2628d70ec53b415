// The VLANs with the most sessions.

import {byId, element, write} from './elements.js';
import {redraw} from './focus.js';
import {count} from './format.js';
import {shown} from './panel.js';
import {Poll} from './poll.js';
import {panel} from './section.js';
import {link} from './views.js';

const SECONDS = 30, MOST = 10;

/** The panel of the busiest VLANs. */
export function vlans(api) {
  new Poll(SECONDS, () => shown('vlans-problem', async () => {
    const {rate_limited_total: refused} = await api.poll('/demux/state', {limit: 1});
    draw(await api.poll('/interfaces/vlans', {sort: '-session_count', limit: MOST}), refused);
  }), ['overview']);
  return panel('vlans', 'Busiest VLANs', [element('ol', {id: 'vlans', class: 'bars'})]);
}

function draw({total, vlans: busiest}, refused) {
  write('vlans-note', `of ${count(total)}${refused ? `; ${count(refused)} refused by the rate limits` : ''}`);
  const most = busiest[0]?.session_count || 1;
  redraw(byId('vlans'), busiest.map(({name, session_count: sessions}) => {
    const bar = element('span', {class: 'bar'});
    bar.style.width = `${100 * sessions / most}%`;
    return element('li', {'data-key': name},
      element('a', {href: link('subscribers', {search: name}), text: name}), bar, element('b', {text: count(sessions)}));
  }));
}
