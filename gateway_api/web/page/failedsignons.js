// The sign-ons that failed: why a subscriber has no session.

import {element} from './elements.js';
import {count, moment, words} from './format.js';
import {ListView} from './listview.js';
import {link} from './views.js';

export const failedSignOns = api => new ListView(api, {
  view: 'failed-sign-ons', heading: 'Failed sign-ons', id: 'failure-list', title: 'Subscribers without a session',
  path: '/subscribers/failed-sign-ons', records: 'failures', sort: null,
  key: ({first_at: at, username, mac_address: mac, access_interface: on, reason}) => `${at} ${username} ${mac} ${on} ${reason}`,
  fields: [
    {name: 'search', label: 'Part of a username, MAC address or interface'}, {name: 'reason', label: 'Reason'},
    {name: 'since', label: 'Since (your time zone)', time: true},
  ],
  columns: [
    {field: 'last_at', title: 'Last attempt', look: 'time', show: ({last_at: at}) => moment(at)},
    {field: 'username', title: 'Username', show: ({username}) => (username ? element('a', {href: link('history', {search: username}), text: username}) : '')},
    {field: 'reason', title: 'Reason', show: ({reason}) => words(reason)},
    {field: 'attempts', title: 'Attempts', look: 'number', show: ({attempts}) => count(attempts)},
    {field: 'mac_address', title: 'MAC address', look: 'wide'},
    {field: 'access_interface', title: 'Access interface', look: 'wide'},
    {field: 'first_at', title: 'First attempt', look: 'wide', show: ({first_at: at}) => moment(at)},
  ],
});
