// The sessions that were: who had an address, and why a session ended.

import {element} from './elements.js';
import {duration, moment, scaled, words} from './format.js';
import {ListView} from './listview.js';
import {link} from './views.js';

export const formerSessions = api => new ListView(api, {
  view: 'history', heading: 'History', id: 'history-list', title: 'Recorded sessions', path: '/subscribers/history', records: 'sessions',
  before: [element('p', {class: 'note'}, 'A subscriber without a session: see ', element('a', {href: link('failed-sign-ons'), text: 'failed sign-ons'}), '.')],
  sort: null, key: ({id, started_at: since}) => `${id} ${since}`,
  fields: [
    {name: 'search', label: 'Part of a username, MAC address or interface'}, {name: 'ip_address', label: 'IP address then'},
    {name: 'at', label: 'Up at (your time zone)', time: true}, {name: 'since', label: 'Up since (your time zone)', time: true},
    {name: 'reason', label: 'Reason'},
  ],
  columns: [
    {field: 'started_at', title: 'Started', look: 'time', show: ({started_at: at, clock}) => (clock === 'unset' ? `${moment(at)} (clock unset)` : moment(at))},
    {field: 'username', title: 'Username', show: ({id, username}) => element('a', {href: link('subscribers', {open: id, search: id}), text: username})},
    {field: 'ip_address', title: 'IP address', show: ({ip_address: address, ipv6_address: other}) => address ?? other ?? ''},
    {field: 'ended_at', title: 'Ended', look: 'wide', show: session => ended(session)},
    {field: 'reason', title: 'Reason', look: 'wide', show: ({reason}) => words(reason ?? '')},
    {field: 'duration_seconds', title: 'Lasted', look: 'number wide', show: ({duration_seconds: seconds}) => (seconds === null ? '' : duration(seconds))},
    {field: 'bytes_out', title: 'Down', look: 'number wide', show: ({bytes_out: bytes}) => (bytes === null ? '' : scaled(bytes, 'B'))},
    {field: 'bytes_in', title: 'Up', look: 'number wide', show: ({bytes_in: bytes}) => (bytes === null ? '' : scaled(bytes, 'B'))},
  ],
});

/** The end of a session may be known only to be within a gap of the records. */
function ended({ended_at: at, ended_before: before}) {
  if (at !== null) return moment(at);
  return before === null ? 'up' : `before ${moment(before)}`;
}
