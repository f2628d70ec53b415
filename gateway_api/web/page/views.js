// The fragment of the URL chooses the view, so the back and forward buttons work.

import {byId} from './elements.js';
import * as polls from './poll.js';

const VIEWS = ['overview', 'subscribers', 'configuration'];

/** Shows the view of the URL, now and after each change. `changed` is called with its name. */
export function follow(changed) {
  const turn = focus => {
    const name = location.hash.slice(1);
    // Other fragments, such as that of the skip link, are places in a view.
    if (name && !VIEWS.includes(name)) return;
    const view = name || VIEWS[0];
    for (const other of VIEWS) byId(other).hidden = other !== view;
    for (const link of document.querySelectorAll('nav a')) {
      if (link.hash === `#${view}`) link.ariaCurrent = 'page';
      else link.removeAttribute('aria-current');
    }
    document.title = `${byId(`${view}-title`).textContent} · Subscriber gateway`;
    // A screen reader reads the title of the new view.
    if (focus) byId(`${view}-title`).focus({preventScroll: true});
    polls.show(view);
    changed(view);
  };
  addEventListener('hashchange', () => turn(true));
  turn(false);
}
