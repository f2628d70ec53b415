// BGP neighbours, from FRR's own summary: an object for each address family.

import {byId, element, stateRow, write} from './elements.js';
import {count, duration} from './format.js';
import {shown} from './panel.js';
import {Poll} from './poll.js';
import {panel} from './section.js';

const SECONDS = 10;

/** The panel of the neighbours. The tile `bgp-up` says how many are up. */
export function neighbours(api) {
  new Poll(SECONDS, () => shown('neighbours-problem', async () => draw(peersOf(await api.poll('/routing/bgp/summary')))), ['overview']);
  return panel('neighbours', 'BGP neighbours', [element('ul', {id: 'neighbours', class: 'states'})]);
}

function draw(peers) {
  const up = peers.filter(({state}) => state === 'Established').length;
  write('bgp-up', peers.length ? `${up} of ${peers.length}` : 'none');
  write('bgp-up-note', up === peers.length ? (up ? 'established' : 'configured') : `${peers.length - up} down`);
  byId('bgp-up').parentElement.classList.toggle('bad', up < peers.length);
  byId('neighbours').replaceChildren(...peers.map(peer => {
    const well = peer.state === 'Established';
    const more = [peer.desc, `AS ${peer.remoteAs}`, well && `${count(peer.pfxRcd)} in, ${count(peer.pfxSnt)} out`];
    const how = well ? `${peer.state} for ${duration(peer.peerUptimeMsec / 1000)}` : peer.state;
    return stateRow(well ? 'good' : 'bad', peer.address, how, more.filter(Boolean).join(' · '));
  }));
}

function peersOf(summary) {
  return Object.values(summary).flatMap(family =>
    Object.entries(family?.peers ?? {}).map(([address, peer]) => ({address, ...peer})));
}
