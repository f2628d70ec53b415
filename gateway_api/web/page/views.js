// Which of the views is shown: the fragment of the address says it, so that back and forward work.

import {byId} from './elements.js';
import * as polls from './poll.js';

const VIEWS = ['overview', 'subscribers', 'configuration'];

/** Shows the view of the address, now and whenever it changes; `changed` is called with its name. */
export function follow(changed) {
  const turn = focus => {
    const name = location.hash.slice(1);
    // Fragments that lead to a place in a view, such as that of the skip link, change none.
    if (name && !VIEWS.includes(name)) return;
    const view = name || VIEWS[0];
    for (const other of VIEWS) byId(other).hidden = other !== view;
    for (const link of document.querySelectorAll('nav a')) {
      if (link.hash === `#${view}`) link.ariaCurrent = 'page';
      else link.removeAttribute('aria-current');
    }
    document.title = `${byId(`${view}-title`).textContent} · Subscriber gateway`;
    // For those who don't see that the page has changed.
    if (focus) byId(`${view}-title`).focus({preventScroll: true});
    polls.show(view);
    changed(view);
  };
  addEventListener('hashchange', () => turn(true));
  turn(false);
}
