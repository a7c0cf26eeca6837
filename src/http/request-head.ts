/** Rejects request heads that servers in a row could read in different ways. */
import type { IncomingMessage } from 'node:http';
import { Fault } from '../core/faults.ts';

const HOST = 'host';
const CREDENTIAL = 'authorization';
/** RFC 3986 §3.2.2: an IPv6 address in brackets, or a name or IPv4 address; then a port. */
const HOST_VALUE = /^(?:\[[\da-f:.]+\]|[\w.~!$&'()*+,;=%-]*)(?::\d*)?$/i;

/**
 * Throws 400 for a missing, repeated or malformed Host (RFC 9112 §3.2) and for several credentials:
 * servers in a row could each read another one.
 */
export function requireClearHead({ rawHeaders, headers, httpVersionMinor }: IncomingMessage): void {
  let hosts = 0;
  let credentials = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] ?? '';
    if (name.length === HOST.length && name.toLowerCase() === HOST) hosts += 1;
    else if (name.length === CREDENTIAL.length && name.toLowerCase() === CREDENTIAL) {
      credentials += 1;
    }
  }
  if (hosts > 1 || (hosts === 0 && httpVersionMinor !== 0)) {
    throw new Fault('INVALID_REQUEST', {
      message: `The request has ${hosts === 0 ? 'no' : 'more than one'} Host header; send exactly one`,
    });
  }
  if (!HOST_VALUE.test(headers.host ?? '')) {
    throw new Fault('INVALID_REQUEST', {
      message: 'The Host header is malformed; send a host name or address, and a port if needed',
    });
  }
  if (credentials > 1) {
    throw new Fault('INVALID_REQUEST', {
      message: 'The request has more than one Authorization header; send one',
    });
  }
}
