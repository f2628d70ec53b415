// The VLANs with the most sessions. The API does not sort by that, so this reads all pages, with pauses.

import {byId, element, write} from './elements.js';
import {count} from './format.js';
import {shown} from './panel.js';
import {Poll} from './poll.js';

const SECONDS = 30, PAGE = 1000, MOST = 10;
const BETWEEN_PAGES = 500;

export class Vlans {
  /** `open` is called with the name of a VLAN whose sessions to show. */
  constructor(api, open) {
    this.open = open;
    this.shown = {total: 0, vlans: []};
    new Poll(SECONDS, () => shown('vlans-problem', async () => this.#draw(await busiest(api) ?? this.shown)), ['overview']);
  }

  #draw(shown) {
    this.shown = shown;
    const {total, vlans} = shown;
    write('vlans-total', `of ${count(total)}`);
    const most = vlans[0]?.session_count || 1;
    byId('vlans').replaceChildren(...vlans.map(({name, session_count: sessions}) => {
      const bar = element('span', {class: 'bar'});
      bar.style.width = `${100 * sessions / most}%`;
      return element('li', {},
        element('a', {href: '#subscribers', text: name, onclick: () => this.open(name)}),
        bar, element('b', {text: count(sessions)}));
    }));
  }
}

async function busiest(api) {
  let found = [], cursor = null, total = 0;
  do {
    const page = await api.poll('/interfaces/vlans', {limit: PAGE, cursor});
    total = page.total;
    found = [...found, ...page.vlans].sort((one, other) => other.session_count - one.session_count).slice(0, MOST);
    cursor = page.next_cursor;
    // The page is hidden now.
    if (document.hidden) return null;
    if (cursor) await new Promise(resolve => setTimeout(resolve, BETWEEN_PAGES));
  } while (cursor);
  return {total, vlans: found};
}
