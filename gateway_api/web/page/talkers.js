// The sessions with the most traffic now.

import {element} from './elements.js';
import {scaled} from './format.js';
import {ListView} from './listview.js';
import {link} from './views.js';

// The core reads the counters so often. It lists at most so many sessions.
const SECONDS = 5, MOST = 1_000;
const bits = field => session => scaled(session[field], 'bit/s');

export const talkers = api => new ListView(api, {
  view: 'traffic', heading: 'Traffic', id: 'talker-list', title: 'Top talkers', path: '/subscribers/traffic',
  records: 'sessions', sort: '-down', seconds: SECONDS, most: MOST, fields: [],
  columns: [
    {field: 'username', title: 'Username', sorts: false, show: session => opener(session)},
    {field: 'ip_address', title: 'IP address', look: 'wide', sorts: false},
    {field: 'type', title: 'Type', look: 'wide', sorts: false},
    {field: 'access_interface', title: 'Access interface', look: 'wide', sorts: false},
    {field: 'down', title: 'Down now', look: 'number', show: bits('down_bps')},
    {field: 'up', title: 'Up now', look: 'number', show: bits('up_bps')},
    {field: 'rate_down', title: 'Down at most', look: 'number wide', sorts: false, show: bits('rate_down')},
    {field: 'rate_up', title: 'Up at most', look: 'number wide', sorts: false, show: bits('rate_up')},
  ],
});

const opener = ({id, username}) => element('a', {href: link('subscribers', {open: id, search: id}), text: username});
