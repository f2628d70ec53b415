// Keys of the page. Those of a table or a chart are in its module.

import {ask} from './dialogs.js';
import {byId} from './elements.js';
import * as views from './views.js';

const HELD = 'input, select, textarea';

export function listen() {
  byId('keys').addEventListener('click', help);
  addEventListener('keydown', event => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    // Their own keys: Escape closes them.
    if (document.querySelector('dialog[open], :popover-open')) return;
    const act = event.target.id === 'find-text' ? {ArrowDown: enter}[event.key]
      : event.target.closest(HELD) ? null : {'/': find, '?': help, Escape: close}[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}

function find() {
  if (views.place().view !== 'subscribers') views.go('subscribers');
  byId('find-text').select();
}

function help() {
  ask('keys-dialog', () => {});
}

function enter() {
  byId('list').querySelector('tbody button')?.focus();
}

/** Closes the menu, or what the view has opened last. */
function close() {
  if (byId('menu').ariaExpanded === 'true') views.menu(false);
  else [...document.querySelectorAll('button.closes')].findLast(button => button.checkVisibility())?.click();
}
