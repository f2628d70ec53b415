// The fragment of the URL is a place in the page: a view and its query, such as #subscribers?search=alice&open=7. So each
// place has a link, and the back and forward buttons work.

import {byId, write} from './elements.js';
import {withQuery} from './format.js';
import * as polls from './poll.js';

const FIRST = 'overview';
const sections = () => document.querySelectorAll('[data-view]');
let current = null, turned = null, shows = {};

export const link = (view, query) => withQuery(`#${view}`, query);

/** Opens a place, as a new entry for the back button. */
export function go(view, query = {}) {
  move(link(view, query));
}

/** Changes parts of the query; null removes one. `replace` adds no entry for the back button. */
export function amend(changes, {replace = false} = {}) {
  const {view, query} = place();
  move(link(view, {...Object.fromEntries(query), ...changes}), replace);
}

export function place() {
  const [name, text] = location.hash.slice(1).split('?');
  const known = [...sections()].some(({dataset}) => dataset.view === name);
  return {view: known ? name : FIRST, query: new URLSearchParams(known ? text : '')};
}

/** Shows the place of the URL, now and after each change. `what` has the views with a query, by name. */
export function follow(what) {
  shows = what;
  // By then the page has already moved, but for the back button and a URL that a user types.
  addEventListener('hashchange', () => location.hash !== turned && turn());
  byId('skip').addEventListener('click', event => {
    event.preventDefault();
    byId('content').focus();
  });
  byId('menu').addEventListener('click', () => menu(byId('menu').ariaExpanded !== 'true'));
  // At once: the browser would tell of the new place later, and what a user has typed meanwhile would be lost.
  addEventListener('click', event => {
    const anchor = event.target.closest('a[href^="#"]');
    if (!anchor || event.defaultPrevented || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    move(anchor.hash);
  });
  turn();
}

/** Opens or closes the menu of the views, which a small screen has in place of their row. */
export function menu(open) {
  byId('menu').ariaExpanded = String(open);
}

function move(hash, replace = false) {
  const again = hash === location.hash;
  if (replace) location.replace(hash);
  else location.hash = hash;
  turn();
  // A second click reads again.
  if (again) polls.show(current);
}

function turn() {
  const {view, query} = place();
  const former = current;
  current = view;
  turned = location.hash;
  menu(false);
  if (view !== former) present(view, former !== null);
  shows[view]?.show(query);
  if (view !== former) polls.show(view);
}

function present(view, focus) {
  for (const section of sections()) section.hidden = section.dataset.view !== view;
  for (const anchor of document.querySelectorAll('#places a')) {
    const group = anchor.nextElementSibling;
    if (group?.querySelector(`a[href="#${view}"]`)) anchor.ariaCurrent = 'true';
    else if (!group && anchor.hash === `#${view}`) anchor.ariaCurrent = 'page';
    else anchor.removeAttribute('aria-current');
  }
  const title = document.querySelector(`[data-view="${view}"] h1`);
  document.title = `${title.textContent} · Subscriber gateway`;
  write('place', title.textContent);
  if (!focus) return;
  // No element has the name of a view as its id, so the browser scrolls to none.
  scrollTo(0, 0);
  // A screen reader reads the title of the new view.
  title.focus({preventScroll: true});
}
