// Keys of the page.

import {byId} from './elements.js';
import * as views from './views.js';

/** `/` leads to the search, from everywhere but a field or a dialog. */
export function listen() {
  addEventListener('keydown', event => {
    if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest('input, select, textarea, dialog')) return;
    event.preventDefault();
    if (views.place().view !== 'subscribers') views.go('subscribers');
    byId('find-text').select();
  });
}
