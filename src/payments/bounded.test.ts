/** Endless responses of facilitators and nodes, and the limits of their content. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type IncomingMessage, type ServerResponse, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { systemClock } from '../core/clock.ts';
import { heapBytes } from '../../test/support/heap-bytes.ts';
import { MAX_RESPONSE_BYTES, boundedText } from './bounded.ts';
import { ExternalFacilitator } from './extensions/external-facilitator.ts';
import { openSolanaNodes } from './solana/chain.ts';

/** More than sockets hold on their way. */
const FAR_BEYOND = 5 * MAX_RESPONSE_BYTES;
const PIECE = Buffer.alloc(64 * 1024, ' ');

describe('responses of nodes and facilitators', () => {
  let answer: (request: IncomingMessage, response: ServerResponse) => void;
  const server = createServer((request, response) => answer(request, response));
  let url: string;

  before(async () => {
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`; // listening on TCP
  });
  after(() => {
    server.closeAllConnections();
    server.close();
  });

  const settle = () =>
    new ExternalFacilitator(url, { timeoutSeconds: 60, expose: false }, systemClock()).settle(
      { x402Version: 2 } as never,
      {} as never,
    );
  const slot = () => openSolanaNodes(url, systemClock()).rpc.getSlot().send();

  for (const [name, ask] of [
    ['a facilitator', settle],
    ['a node', slot],
  ] as const) {
    test(`${name} that answers without end is left`, async () => {
      let sentBytes = 0;
      const gone = Promise.withResolvers<void>();
      answer = (_request, response) => {
        response.on('close', () => gone.resolve());
        const more = (): void => {
          while (!response.destroyed && sentBytes < FAR_BEYOND) {
            sentBytes += PIECE.length;
            if (!response.write(PIECE)) return void response.once('drain', more);
          }
          response.end();
        };
        more();
      };
      await assert.rejects(ask(), /The response must have at most/);
      await gone.promise;
      assert.ok(sentBytes < FAR_BEYOND, `${sentBytes} bytes were taken`);
    });

    test(`${name} whose small answer unpacks to a large one is left`, async () => {
      const bomb = gzipSync(Buffer.alloc(2 * MAX_RESPONSE_BYTES, ' '));
      answer = (_request, response) => {
        response.writeHead(200, { 'content-encoding': 'gzip' }).end(bomb);
      };
      await assert.rejects(ask(), /The response must have at most/);
    });
  }

  test('whole numbers of a node are not rounded', async () => {
    answer = (_request, response) =>
      void response.end('{"jsonrpc":"2.0","id":"1","result":9007199254740993}');
    assert.equal(await slot(), 9_007_199_254_740_993n);
  });

  test('an error of a facilitator and an unknown response differ from a settlement', async () => {
    const said = (text: string, status = 200) => {
      answer = (_request, response) => void response.writeHead(status).end(text);
    };
    said('{"success":true}');
    await settle();
    said('{"success":false,"errorReason":"no_gas"}');
    await assert.rejects(settle(), /rejects the payment: no_gas/);
    said('[]');
    await assert.rejects(settle(), /did not return a JSON object/);
    said('{"success":true}', 500);
    await assert.rejects(settle(), /status 500/);
  });
});

test('a response of single bytes takes little more memory than its bytes', async () => {
  const pieces = 300_000;
  const usedBytes = heapBytes();
  let grownBytes = Infinity;
  let sent = 0;
  const body = new ReadableStream({
    pull(controller) {
      if (sent < pieces) controller.enqueue(Buffer.alloc(1, 'a'));
      else {
        grownBytes = heapBytes() - usedBytes;
        controller.close();
      }
      sent += 1;
    },
  });
  assert.equal((await boundedText(new Response(body))).length, pieces);
  assert.ok(grownBytes < 20 * pieces, String(grownBytes));
});
