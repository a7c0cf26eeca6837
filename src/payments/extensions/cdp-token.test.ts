/** Requests to a facilitator with the API key of Coinbase Developer Platform. */
import assert from 'node:assert/strict';
import { type KeyObject, generateKeyPairSync } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, test } from 'node:test';
import { jwtVerify } from 'jose';
import { loadConfig } from '../../config/config.ts';
import { systemClock } from '../../core/clock.ts';
import { ExternalFacilitator } from './external-facilitator.ts';

function ed25519(): [secret: string, publicKey: KeyObject] {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  const { d = '', x = '' } = privateKey.export({ format: 'jwk' });
  const bytes = [d, x].map((part) => Buffer.from(part, 'base64url'));
  return [Buffer.concat(bytes).toString('base64'), publicKey];
}

function p256(): [secret: string, publicKey: KeyObject] {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  return [privateKey.export({ format: 'pem', type: 'sec1' }), publicKey];
}

const KEYS = [
  ['an Ed25519 key', 'EdDSA', ed25519()],
  ['a P-256 key', 'ES256', p256()],
] as const;

describe('a facilitator with an API key of CDP', () => {
  for (const [name, algorithm, [keySecret, publicKey]] of KEYS) {
    test(`receives a fresh token of ${name} for each request`, async () => {
      const tokens: string[] = [];
      const server = createServer((request, response) => {
        tokens.push(`${request.method} ${request.url} ${request.headers.authorization}`);
        response.end('{"success":true,"kinds":[]}');
      });
      server.listen(0, '127.0.0.1');
      await once(server, 'listening');
      const { port } = server.address() as AddressInfo; // listening on TCP
      try {
        const cdp = { keyId: 'key-1', keySecret };
        const settings = { timeoutSeconds: 5, expose: false, authorization: undefined, cdp };
        const facilitator = new ExternalFacilitator(
          `http://127.0.0.1:${port}/x402`,
          settings,
          systemClock(),
        );
        await facilitator.settle({ x402Version: 2 } as never, {} as never);
        await facilitator.feePayer('solana:x');
      } finally {
        server.close();
      }
      assert.equal(new Set(tokens).size, 2);
      for (const text of tokens) {
        const [method, path, scheme, token = ''] = text.split(' ');
        assert.equal(scheme, 'Bearer');
        const options = { issuer: 'cdp', audience: 'cdp_service', subject: 'key-1' };
        const { payload, protectedHeader } = await jwtVerify(token, publicKey, options);
        assert.deepEqual(payload['uris'], [`${method} 127.0.0.1:${port}${path}`]);
        assert.equal((payload.exp ?? 0) - (payload.nbf ?? 0), 120);
        const { alg, kid, typ, nonce } = protectedHeader;
        assert.deepEqual([alg, kid, typ], [algorithm, 'key-1', 'JWT']);
        assert.match(String(nonce), /^[\da-f]{32}$/);
      }
    });
  }

  test('a key that is neither kind, and a key without a URL, are rejected at the start', async () => {
    const problemsOf = async (facilitator: string): Promise<string> => {
      const yaml = `payments: { facilitator: ${facilitator} }`;
      const loaded = await loadConfig({ env: {}, cwd: '/', readFile: async () => yaml });
      return loaded.ok ? '' : loaded.problems.map(({ message }) => message).join('\n');
    };
    const url = 'url: "https://api.cdp.coinbase.com/platform/v2/x402"';
    assert.match(await problemsOf(`{ ${url}, cdp: { keyId: a, keySecret: b } }`), /64 bytes/);
    const [secret] = ed25519();
    const cdp = `cdp: { keyId: a, keySecret: "${secret}" }`;
    assert.match(await problemsOf(`{ ${cdp} }`), /Needs "url"/);
    assert.equal(await problemsOf(`{ ${url}, ${cdp} }`), '');
  });
});
