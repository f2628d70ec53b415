// The lists of the network: interfaces, routes, and sessions that are steered to the CGNAT appliance.

import {element, write} from './elements.js';
import {count, moment, scaled} from './format.js';
import {ListView} from './listview.js';
import {shown} from './panel.js';
import {Poll} from './poll.js';
import {problem, tile} from './section.js';
import {link} from './views.js';

const SECONDS = 10;
const session = id => element('a', {href: link('subscribers', {open: id, search: id}), text: id});
const bytes = field => ({stats}) => scaled(stats[field], 'B');

export const interfaces = api => new ListView(api, {
  view: 'interfaces', heading: 'Interfaces', id: 'interface-list', title: 'All interfaces', path: '/interfaces', records: 'interfaces', key: ({ifindex}) => ifindex,
  seconds: SECONDS,
  fields: [{name: 'type', label: 'Type', choice: true}, {name: 'name', label: 'Name'}, {name: 'mac_address', label: 'MAC address'}],
  columns: [
    {field: 'name', title: 'Name'}, {field: 'type', title: 'Type'}, {field: 'oper_state', title: 'State'},
    {field: 'admin_state', title: 'Admin', look: 'wide'}, {field: 'mac_address', title: 'MAC address', look: 'wide'},
    {field: 'mtu', title: 'MTU', look: 'number wide'},
    {field: 'addresses', title: 'Addresses', look: 'wide', sorts: false, show: ({addresses}) => addresses.map(address).join(', ')},
    {field: 'parent', title: 'Parent', look: 'wide'},
    {field: 'rx', title: 'Received', look: 'number wide', sorts: false, show: bytes('rx_bytes')},
    {field: 'tx', title: 'Transmitted', look: 'number wide', sorts: false, show: bytes('tx_bytes')},
  ],
});

export const routes = api => new ListView(api, {
  view: 'routes', heading: 'Routes', id: 'route-list', title: 'All routes', path: '/routing/routes', records: 'routes',
  key: ({dst, table, dev}) => `${dst} ${table} ${dev}`, seconds: SECONDS,
  fields: [{name: 'dst', label: 'Destination'}, {name: 'gateway', label: 'Gateway'}, {name: 'dev', label: 'Device'}, {name: 'protocol', label: 'Protocol'}],
  columns: [
    {field: 'dst', title: 'Destination'}, {field: 'gateway', title: 'Gateway', look: 'wide'}, {field: 'dev', title: 'Device'},
    {field: 'protocol', title: 'Protocol', look: 'wide'}, {field: 'type', title: 'Type', look: 'wide'},
    {field: 'table', title: 'Table', look: 'wide'}, {field: 'metric', title: 'Metric', look: 'number wide'},
    {field: 'session_id', title: 'Session', look: 'number', show: ({session_id: id}) => (id === null ? '' : session(id))},
  ],
});

export function cgnat(api) {
  const tiles = element('dl', {class: 'tiles three'}, tile('cgnat-steered', 'Steered', 'through the CGNAT VRF'),
    tile('cgnat-public', 'Public', 'with an address of their own'), tile('cgnat-total', 'Sessions', 'online now'));
  const view = new ListView(api, {
    view: 'cgnat', heading: 'CGNAT', before: [tiles, problem('cgnat-problem')], id: 'cgnat-list', title: 'Steered sessions', path: '/cgnat/sessions', records: 'sessions', seconds: SECONDS,
    fields: [{name: 'username', label: 'Username'}, {name: 'ip_address', label: 'IP address'}, {name: 'interface', label: 'Interface'}],
    columns: [
      {field: 'id', title: 'Id', look: 'number', show: ({id}) => session(id)}, {field: 'username', title: 'Username'},
      {field: 'ip_address', title: 'IP address'}, {field: 'type', title: 'Type', look: 'wide'},
      {field: 'interface', title: 'Interface', look: 'wide'}, {field: 'vrf_name', title: 'VRF', look: 'wide'},
      {field: 'handoff_interface', title: 'Handoff', look: 'wide'}, {field: 'handoff_gateway', title: 'Gateway', look: 'wide'},
      {field: 'started_at', title: 'Online since', look: 'wide', show: ({started_at: since}) => moment(since)},
    ],
  });
  new Poll(SECONDS, () => shown('cgnat-problem', async () => {
    const stats = await api.poll('/cgnat/stats');
    write('cgnat-steered', count(stats.vrf_steered_sessions));
    write('cgnat-public', count(stats.public_ip_sessions));
    write('cgnat-total', count(stats.total_sessions));
  }), ['cgnat']);
  return view;
}

const address = ({address: text, prefix_length: length}) => `${text}/${length}`;
