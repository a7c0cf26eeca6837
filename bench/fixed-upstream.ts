/**
 * The same fixed response as `upstream.ts`, written directly to the socket. An engine on
 * `node:http` would be the slowest part on the core that it shares with `wrk`, and distort the
 * ratios.
 */
import { createServer, type Socket } from 'node:net';
import { announce } from './announce.ts';
import { ANSWER } from './fixed-response.ts';

const HEAD_END = Buffer.from('\r\n\r\n');
const RESPONSE = Buffer.concat([
  Buffer.from(
    `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${ANSWER.length}\r\n\r\n`,
  ),
  ANSWER,
]);

function serve(socket: Socket): void {
  let held: Buffer = Buffer.alloc(0);
  let bodyLeft = 0;
  socket.setNoDelay(true);
  socket.on('error', () => socket.destroy());
  socket.on('data', (data: Buffer) => {
    let rest = data;
    if (bodyLeft === 0 && held.length > 0) rest = Buffer.concat([held, data]);
    while (rest.length > 0) {
      if (bodyLeft === 0) {
        const end = rest.indexOf(HEAD_END);
        if (end < 0) {
          held = rest;
          return;
        }
        const head = rest.toString('latin1', 0, end);
        bodyLeft = Number(/content-length: (\d+)/i.exec(head)?.[1] ?? '0');
        held = Buffer.alloc(0);
        rest = rest.subarray(end + HEAD_END.length);
        if (bodyLeft === 0) socket.write(RESPONSE);
        continue;
      }
      const taken = Math.min(bodyLeft, rest.length);
      bodyLeft -= taken;
      rest = rest.subarray(taken);
      if (bodyLeft === 0) socket.write(RESPONSE);
    }
  });
}

announce(createServer(serve));
