// Results of actions, for some seconds.

import {byId, element} from './elements.js';

const SHOWN = 6_000;

export function toast(text) {
  const shown = element('p', {text});
  byId('toasts').append(shown);
  setTimeout(() => shown.remove(), SHOWN);
}
