/**
 * A real server with a Base node that fails in every way of public nodes: the process survives, no
 * response reports money as lost or invalid, and payments continue when the node is back.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { type FaultProxy, type Fate, startFaultProxy } from '../chains/fault-proxy.ts';
import { type FareboxProcess, removeFolder, startFarebox } from './farebox-process.ts';
import {
  type WalletFixture,
  chat,
  evmPayment,
  signIn,
  startWalletFixture,
  topUp,
} from './wallet-fixture.ts';

const FAULTS: readonly (readonly [string, Fate])[] = [
  ['drops connections', 'lose-request'],
  ['answers 429', { status: 429 }],
  ['answers 503', { status: 503 }],
  ['answers -32005', { code: -32_005, message: 'limit exceeded' }],
  ['answers -32603', { code: -32_603, message: 'Internal error' }],
];
const GARBAGE = `0x${'11'.repeat(65)}`;
const ZEROS = `0x${'00'.repeat(65)}`;

describe('a server with a faulty node', () => {
  let fixture: WalletFixture;
  let proxy: FaultProxy;
  let farebox: FareboxProcess;

  before(async () => {
    fixture = await startWalletFixture('  facilitator: { expose: true }');
    proxy = await startFaultProxy(fixture.anvil.rpcUrl);
    farebox = await start();
  });

  after(async () => {
    await farebox.stop();
    removeFolder(farebox);
    await proxy.stop();
    await fixture.stop();
  });

  const start = async (): Promise<FareboxProcess> =>
    await startFarebox({
      yaml: `listen: { host: 127.0.0.1, port: ${fixture.port} }
service: { publicUrl: "${fixture.origin}" }
embedded: { enabled: false }
discovery: { enabled: false }
${fixture.yaml.replace(fixture.anvil.rpcUrl, proxy.url)}`,
    });

  const unsigned = async (signature: string): Promise<string> =>
    await evmPayment(privateKeyToAccount(generatePrivateKey()), { payload: { signature } });

  async function verify(header: string): Promise<Response> {
    const payload = JSON.parse(Buffer.from(header, 'base64').toString()) as { accepted: object };
    const accepted = { ...payload.accepted, extra: { name: 'USD Coin', version: '2' } };
    return await fetch(`${farebox.url}/x402/facilitator/verify`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        x402Version: 2,
        paymentPayload: { ...payload, accepted },
        paymentRequirements: { ...accepted, maxTimeoutSeconds: 300 },
      }),
    });
  }

  async function readyParts(): Promise<{ server: { unhandledRejections: number } }> {
    const answer = await fetch(`${fixture.origin}/readyz`);
    return ((await answer.json()) as { parts: { server: { unhandledRejections: number } } }).parts;
  }

  for (const [says, fate] of FAULTS) {
    for (const only of [undefined, 'eth_getCode']) {
      const where = only === undefined ? 'always' : `on ${only}`;
      test(`a node that ${says} ${where}: 503, and the process lives`, async () => {
        proxy.fate = (method) => (only === undefined || method === only ? fate : 'pass');
        try {
          const proof = await signIn(privateKeyToAccount(generatePrivateKey()), fixture.origin);
          const forged = JSON.parse(Buffer.from(proof, 'base64').toString()) as object;
          const header = Buffer.from(JSON.stringify({ ...forged, signature: GARBAGE }));
          const answers = await Promise.all([
            topUp(fixture.origin, { 'PAYMENT-SIGNATURE': await unsigned(GARBAGE) }),
            topUp(fixture.origin, { 'X-PAYMENT': await unsigned(ZEROS) }),
            chat(fixture.origin, { 'PAYMENT-SIGNATURE': await unsigned(GARBAGE) }),
            verify(await unsigned(GARBAGE)),
            topUp(fixture.origin, {
              'PAYMENT-SIGNATURE': await evmPayment(await fixture.evmWallet()),
            }),
            chat(fixture.origin, { 'SIGN-IN-WITH-X': header.toString('base64') }),
          ]);
          const statuses = answers.map(({ status }) => status);
          // Without the code of the wallet, the signature is checked by a call that needs none.
          const expected =
            only === undefined ? [503, 503, 503, 503, 503, 503] : [400, 400, 400, 503, 503, 401];
          assert.deepEqual(statuses, expected);
          for (const answer of answers) await answer.text();
        } finally {
          proxy.fate = () => 'pass';
        }
        assert.equal(farebox.child.exitCode, null, farebox.output());
        assert.equal((await readyParts()).server.unhandledRejections, 0);
      });
    }
  }

  test('after the faults a payment is credited, and invalid ones get an error message', async () => {
    const account = await fixture.evmWallet();
    const paid = await topUp(fixture.origin, { 'PAYMENT-SIGNATURE': await evmPayment(account) });
    assert.equal(paid.status, 200, await paid.text());
    const refused = await topUp(fixture.origin, { 'PAYMENT-SIGNATURE': await unsigned(GARBAGE) });
    assert.equal(refused.status, 400);
    const body = (await refused.json()) as { error: string };
    assert.equal(body.error, 'PAYMENT_VERIFICATION_FAILED');
  });
});
