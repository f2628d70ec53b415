// The first view: what the gateway does now.

import {arrivals} from './arrivals.js';
import {element, write} from './elements.js';
import {feed} from './feed.js';
import {count, percent} from './format.js';
import {health} from './health.js';
import {neighbours} from './neighbours.js';
import {shown} from './panel.js';
import {Poll} from './poll.js';
import {problem, tile, viewSection} from './section.js';
import {dayTraffic, traffic} from './traffic.js';
import {vlans} from './vlans.js';

const QUIET = 10, LEAST = 1_000;
const to = (href, text) => element('a', {href, text});

export function overview(api, stream) {
  viewSection('overview', 'Overview',
    // `health` shows this paragraph on a lab.
    element('p', {id: 'lab', hidden: true}, 'This gateway is a lab: the subscribers, their traffic and the BGP neighbours are simulated. ',
      to('#subscribers', 'Find a subscriber'), ', ', to('#configuration', 'change the configuration'), ', or follow the tutorial ',
      to('/docs/tutorial/first-change.html', 'Make a first change'), '.'),
    element('dl', {class: 'tiles'}, tile('total', 'Sessions', 'online now', 'main'), tile('pppoe', 'PPPoE', ''), tile('dhcp', 'DHCP', ''),
      tile('downstream', 'Downstream', 'to subscribers'), tile('upstream', 'Upstream', 'from subscribers'), tile('bgp-up', 'BGP neighbours', '')),
    problem('summary-problem'), element('div', {class: 'pair'}, arrivals(api, stream), traffic(api)), dayTraffic(api),
    element('div', {class: 'columns'}, feed(stream), vlans(api), element('div', {class: 'stack'}, neighbours(api), health(api))));
  countSessions(api, stream);
}

function countSessions(api, stream) {
  let due = null;
  const read = async () => {
    const {total, pppoe, dhcp} = await api.poll('/subscribers/summary');
    write('total', count(total));
    for (const [id, number] of Object.entries({pppoe, dhcp})) {
      write(id, count(number));
      write(`${id}-note`, percent(number, total));
    }
  };
  const poll = new Poll(QUIET, () => shown('summary-problem', read), ['overview']);
  // session_down has no type. The request is cheap, and is sent at most once per second.
  stream.addEventListener('events', ({detail}) => {
    if (!detail.length || due) return;
    due = setTimeout(() => {
      due = null;
      poll.now();
    }, LEAST);
  });
  stream.addEventListener('gap', () => poll.now());
}
