/** Sign-in proofs: the rules with their codes, single use, and that garbage is only ever refused. */
import assert from 'node:assert/strict';
import { generateKeyPairSync, sign } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import fc from 'fast-check';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { isoTime, MINUTE_MS, SECOND_MS } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import { systemIds } from '../../core/ids.ts';
import { seededIds } from '../../../test/support/seeded-ids.ts';
import { silentLog } from '../../core/log.ts';
import { TestClock } from '../../../test/support/test-clock.ts';
import { openStore } from '../../db/db.ts';
import type { Store } from '../../db/db.ts';
import { base58Encode } from '../../core/base58.ts';
import { isSmallOrder } from '../../core/ed25519.ts';
import { checksumAddress } from '../../core/addresses.ts';
import { PAYMENTS_MIGRATIONS } from '../migrations.ts';
import { BASE, SOLANA } from '../networks.ts';
import { buildMessage } from './message.ts';
import { WalletTokens } from './wallet-tokens.ts';
import { SignIn } from './sign-in.ts';

const clock = new TestClock();
const NOW = clock.nowMs();
const account = privateKeyToAccount(generatePrivateKey());
const other = privateKeyToAccount(generatePrivateKey());
const solana = generateKeyPairSync('ed25519');
const solanaWallet = base58Encode(
  Buffer.from(solana.publicKey.export({ format: 'jwk' }).x ?? '', 'base64url'),
);
let nonceCount = 0;
const freshNonce = (): string => `nonce${String((nonceCount += 1)).padStart(8, '0')}`;

interface Fields {
  domain: string;
  address: string;
  statement?: string | undefined;
  uri: string;
  version: string;
  chainId: string;
  type: string;
  nonce: string;
  issuedAt: string;
  expirationTime?: string | undefined;
  notBefore?: string | undefined;
  resources?: string[] | undefined;
}

function fieldsOf(changes: Partial<Fields> = {}): Fields {
  return {
    domain: 'api.test:8402',
    address: account.address,
    statement: 'Sign in to svc',
    uri: 'http://api.test:8402/api/v1/chat/completions',
    version: '1',
    chainId: BASE,
    type: 'eip191',
    nonce: freshNonce(),
    issuedAt: isoTime(NOW),
    expirationTime: isoTime(NOW + 5 * MINUTE_MS),
    ...changes,
  };
}

function textOf(fields: Fields): string {
  const [namespace, reference = ''] = fields.chainId.split(':');
  return buildMessage({
    family: namespace === 'solana' ? 'solana' : 'evm',
    chainReference: reference,
    requestId: undefined,
    ...fields,
    statement: fields.statement,
    expirationTime: fields.expirationTime,
    notBefore: fields.notBefore,
    resources: fields.resources,
  });
}

const encode = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64');

async function structured(changes: Partial<Fields> = {}, extra: object = {}): Promise<string> {
  const fields = fieldsOf(changes);
  const signature = await account.signMessage({ message: textOf(fields) });
  return encode({ ...fields, signature, ...extra });
}

async function textForm(
  text: string,
  extra: object = {},
  signer: typeof account = account,
): Promise<string> {
  const signature = await signer.signMessage({ message: text });
  return encode({
    address: account.address,
    message: text,
    signature,
    timestamp: NOW,
    chainId: 8453,
    ...extra,
  });
}

function solanaProof(changes: Partial<Fields> = {}, signatureText?: string): string {
  const fields = fieldsOf({
    chainId: SOLANA,
    type: 'ed25519',
    address: solanaWallet,
    ...changes,
  });
  const bytes = sign(null, Buffer.from(textOf(fields)), solana.privateKey);
  return encode({ ...fields, signature: signatureText ?? base58Encode(bytes) });
}

const folder = mkdtempSync(join(tmpdir(), 'farebox-sign-in-'));
let store: Store;
let signIn: SignIn;

async function open(file: string): Promise<Store> {
  const opened = await openStore({
    url: `sqlite:${join(folder, file)}`,
    clock,
    ids: systemIds(),
    log: silentLog,
  });
  await opened.migrate(PAYMENTS_MIGRATIONS);
  return opened;
}

function signInWith(
  on: Store,
  isContractSignature?: (question: { address: string }) => Promise<boolean>,
): SignIn {
  return new SignIn({
    store: on,
    clock,
    log: silentLog,
    publicUrl: 'http://api.test:8402',
    chains: [BASE, SOLANA],
    isContractSignature,
  });
}

async function codeOf(header: string, by: SignIn = signIn): Promise<string> {
  try {
    await by.verify(header, '');
  } catch (error) {
    assert.ok(error instanceof Fault, `not a Fault: ${String(error)}`);
    return error.code;
  }
  return 'accepted';
}

describe('sign-in', () => {
  before(async () => {
    store = await open('sign-in.db');
    signIn = signInWith(store);
  });

  after(async () => {
    await store.close();
    rmSync(folder, { recursive: true, force: true });
  });

  describe('good proofs', () => {
    test('a structured EVM proof gives the lower-case wallet', async () => {
      const signed = await signIn.verify(await structured(), '');
      assert.deepEqual(signed, { wallet: account.address.toLowerCase(), chain: BASE });
    });

    test('statement, resources, not-before and a type of eip1271 are part of the signed text', async () => {
      const changes = { resources: ['https://a.test/x'], notBefore: isoTime(NOW - 1000) };
      assert.equal(await codeOf(await structured(changes)), 'accepted');
      assert.equal(await codeOf(await structured({ statement: undefined })), 'accepted');
      assert.equal(await codeOf(await structured({ type: 'eip1271' })), 'accepted');
    });

    test('the text form is verified over the exact text, with the chain in three spellings', async () => {
      for (const chainId of [8453, '8453', BASE]) {
        assert.equal(await codeOf(await textForm(textOf(fieldsOf()), { chainId })), 'accepted');
      }
      const plain = await textForm(textOf(fieldsOf()), {
        chainId: undefined,
        timestamp: undefined,
      });
      assert.equal(await codeOf(plain), 'accepted');
    });

    test('a Solana proof keeps the case of its address, signature in base58 or base64', async () => {
      const signed = await signIn.verify(solanaProof(), '');
      assert.deepEqual(signed, { wallet: solanaWallet, chain: SOLANA });
      const fields = fieldsOf({ chainId: SOLANA, type: 'ed25519', address: solanaWallet });
      const bytes = sign(null, Buffer.from(textOf(fields)), solana.privateKey);
      const header = encode({ ...fields, signature: bytes.toString('base64') });
      assert.equal(await codeOf(header), 'accepted');
    });

    test('issued up to 30 s in the future or 5 min ago is fresh', async () => {
      const ahead = { issuedAt: isoTime(NOW + 30 * SECOND_MS), expirationTime: undefined };
      const old = { issuedAt: isoTime(NOW - 5 * MINUTE_MS), expirationTime: undefined };
      assert.equal(await codeOf(await structured(ahead)), 'accepted');
      assert.equal(await codeOf(await structured(old)), 'accepted');
    });

    test('a contract wallet is asked only when its key did not sign', async () => {
      const asked: string[] = [];
      const withContracts = signInWith(store, async ({ address }) => {
        asked.push(address);
        return await Promise.resolve(true);
      });
      assert.equal(await codeOf(await structured(), withContracts), 'accepted');
      assert.deepEqual(asked, []);
      const header = await textForm(textOf(fieldsOf()), {}, other);
      assert.equal(await codeOf(header, withContracts), 'accepted');
      assert.deepEqual(asked, [account.address.toLowerCase()]);
    });

    test('a chain that cannot be asked about a contract wallet is 503, not 401', async () => {
      const broken = signInWith(store, async () => await Promise.reject(new Error('down')));
      const header = await textForm(textOf(fieldsOf()), {}, other);
      assert.equal(await codeOf(header, broken), 'SERVICE_UNAVAILABLE');
      assert.equal(await codeOf(header), 'X402_SIGN_IN_INVALID_SIGNATURE');
    });
  });

  describe('bad proofs', () => {
    const text = (changes: Partial<Fields> = {}): string => textOf(fieldsOf(changes));
    const cases: [string, string, () => Promise<string> | string][] = [
      ['not base64', 'INVALID_PAYLOAD', () => '{"a":1}'],
      ['base64 of no JSON', 'INVALID_PAYLOAD', () => Buffer.from('hello').toString('base64')],
      ['a JSON array', 'INVALID_PAYLOAD', () => encode([1])],
      ['an empty object', 'INVALID_CHAIN_ID', () => encode({})],
      ['longer than 8 KB', 'INVALID_PAYLOAD', () => 'A'.repeat(9_000)],
      ['no signature', 'INVALID_PAYLOAD', () => structured({}, { signature: undefined })],
      ['an unknown type', 'INVALID_PAYLOAD', () => structured({}, { type: 'rsa' })],
      ['a line break in a field', 'INVALID_PAYLOAD', () => structured({ statement: 'a\nURI: b' })],
      ['a domain that is a number', 'INVALID_PAYLOAD', () => structured({}, { domain: 7 })],
      ['resources that are no list', 'INVALID_PAYLOAD', () => structured({}, { resources: 'x' })],
      [
        'a timestamp that is a word',
        'INVALID_PAYLOAD',
        () => textForm(text(), { timestamp: 'now' }),
      ],
      ['a text that is no message', 'PARSE_ERROR', () => textForm('hello')],
      ['a tagged line too many', 'PARSE_ERROR', () => textForm(`${text()}\nColour: red`)],
      [
        'no issued-at line',
        'INVALID_MESSAGE',
        () => textForm(text().replace(/\nIssued At: .*Z/, '')),
      ],
      ['version 2', 'INVALID_MESSAGE', () => structured({ version: '2' })],
      ['a nonce of three letters', 'INVALID_MESSAGE', () => structured({ nonce: 'abc' })],
      ['an issued-at that is no time', 'INVALID_MESSAGE', () => structured({ issuedAt: 'today' })],
      ['no nonce line', 'MISSING_NONCE', () => textForm(text().replace(/\nNonce: .*/, ''))],
      ['an empty nonce', 'MISSING_NONCE', () => structured({}, { nonce: '' })],
      [
        'another address beside the text',
        'ADDRESS_MISMATCH',
        () => textForm(text(), { address: other.address }),
      ],
      ['an address that is none', 'INVALID_WALLET', () => structured({ address: '0x1234' })],
      [
        'an address with a wrong checksum',
        'INVALID_WALLET',
        () => structured({ address: wrongCase(account.address) }),
      ],
      ['a Solana address on Base', 'INVALID_WALLET', () => structured({ address: solanaWallet })],
      [
        'a chain id that is no chain',
        'INVALID_CHAIN_ID',
        () => structured({}, { chainId: 'base' }),
      ],
      ['a chain id with a space', 'INVALID_CHAIN_ID', () => textForm(text(), { chainId: '8453 ' })],
      ['another chain beside the text', 'CHAIN_MISMATCH', () => textForm(text(), { chainId: 1 })],
      ['Ethereum mainnet', 'UNSUPPORTED_CHAIN', () => structured({ chainId: 'eip155:1' })],
      [
        'Solana devnet',
        'UNSUPPORTED_CHAIN',
        () => solanaProof({ chainId: 'solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1' }),
      ],
      ['another domain', 'DOMAIN_MISMATCH', () => structured({ domain: 'evil.test' })],
      ['the domain without its port', 'DOMAIN_MISMATCH', () => structured({ domain: 'api.test' })],
      [
        'a timestamp off by a minute',
        'TIMESTAMP_MISMATCH',
        () => textForm(text(), { timestamp: NOW - MINUTE_MS }),
      ],
      [
        'issued six minutes ago',
        'EXPIRED',
        () => structured({ issuedAt: isoTime(NOW - 6 * MINUTE_MS) }),
      ],
      ['past its expiration time', 'EXPIRED', () => structured({ expirationTime: isoTime(NOW) })],
      [
        'issued in a minute',
        'FUTURE_TIMESTAMP',
        () => structured({ issuedAt: isoTime(NOW + MINUTE_MS) }),
      ],
      ['not valid yet', 'NOT_BEFORE', () => structured({ notBefore: isoTime(NOW + 1000) })],
      ['the signature of another key', 'INVALID_SIGNATURE', () => textForm(text(), {}, other)],
      [
        'a signature that is no hex',
        'INVALID_SIGNATURE',
        () => structured({}, { signature: '0xzz' }),
      ],
      [
        'a signature of zeros',
        'INVALID_SIGNATURE',
        () => structured({}, { signature: `0x${'00'.repeat(65)}` }),
      ],
      [
        'a changed field',
        'INVALID_SIGNATURE',
        () => structured({}, { uri: 'http://api.test:8402/x' }),
      ],
      [
        'a Solana signature cut short',
        'INVALID_SIGNATURE',
        () => solanaProof({}, base58Encode(Buffer.alloc(63, 7))),
      ],
      ['a Solana key of small order', 'INVALID_SIGNATURE', () => forgedSolanaProof()],
    ];
    for (const [name, code, make] of cases) {
      test(`${name}: ${code}`, async () => {
        assert.equal(await codeOf(await make()), `X402_SIGN_IN_${code}`);
      });
    }

    test('a nonce used before: NONCE_REUSED, also after a restart and in another process', async () => {
      const header = await structured();
      const first = await open('restart.db');
      assert.equal(await codeOf(header, signInWith(first)), 'accepted');
      assert.equal(await codeOf(header, signInWith(first)), 'X402_SIGN_IN_NONCE_REUSED');
      const second = await open('restart.db');
      assert.equal(await codeOf(header, signInWith(second)), 'X402_SIGN_IN_NONCE_REUSED');
      await first.close();
      const third = await open('restart.db');
      assert.equal(await codeOf(header, signInWith(third)), 'X402_SIGN_IN_NONCE_REUSED');
      await second.close();
      await third.close();
    });

    test('of eight proofs at once with one nonce exactly one is accepted', async () => {
      const header = await structured();
      const codes = await Promise.all(Array.from({ length: 8 }, async () => await codeOf(header)));
      assert.equal(codes.filter((code) => code === 'accepted').length, 1);
    });

    test('a bad signature does not use up the nonce of the wallet', async () => {
      const nonce = freshNonce();
      await codeOf(await structured({ nonce }, { signature: `0x${'11'.repeat(65)}` }));
      assert.equal(await codeOf(await structured({ nonce })), 'accepted');
    });

    test('garbage of every kind is refused with a Fault and nothing else', async () => {
      const header = await structured();
      // Used up first, so that a change that changes nothing is refused as well.
      assert.equal(await codeOf(header), 'accepted');
      const valid = JSON.parse(Buffer.from(header, 'base64').toString()) as object;
      const keys = fc.constantFrom(
        'domain',
        'address',
        'statement',
        'uri',
        'version',
        'chainId',
        'type',
        'nonce',
        'issuedAt',
        'expirationTime',
        'notBefore',
        'resources',
        'signature',
        'message',
        'timestamp',
      );
      const garbage = fc.oneof(
        fc.string({ maxLength: 200 }).map((text) => Buffer.from(text).toString('base64')),
        fc.base64String({ maxLength: 400 }),
        fc.json().map((text) => Buffer.from(text).toString('base64')),
        fc.dictionary(keys, fc.anything()).map((change) => encode(safe({ ...valid, ...change }))),
        fc.dictionary(keys, fc.string()).map((change) => encode({ ...valid, ...change })),
        fc
          .string()
          .map((message) => encode({ message, address: account.address, signature: '0x00' })),
      );
      await fc.assert(
        fc.asyncProperty(garbage, async (bad) => {
          assert.match(await codeOf(bad), /^X402_SIGN_IN_/);
        }),
        { numRuns: 1_500 },
      );
    });
  });

  describe('nonces and tokens', () => {
    test('nonces that cannot come back are pruned', async () => {
      const later = new TestClock(NOW);
      const pruning = new SignIn({
        store,
        clock: later,
        log: silentLog,
        publicUrl: 'http://api.test:8402',
        chains: [BASE],
        isContractSignature: undefined,
      });
      await pruning.verify(await structured(), '');
      later.advance(6 * MINUTE_MS + 31 * SECOND_MS);
      await pruning.prune();
      const rows = await store.query<{ n: bigint }>('SELECT COUNT(*) AS n FROM payments_nonce');
      assert.equal(rows[0]?.n, 0n);
    });

    test('a wallet token names its wallet until it expires, and cannot be forged', async () => {
      const mine = new TestClock(NOW);
      const options = {
        clock: mine,
        ids: seededIds(1),
        lifeMs: 15 * MINUTE_MS,
        prefix: 'svc_wallet_',
        store,
        caps: { set: async () => undefined, drop: async () => undefined },
      };
      const free = { usdNano: undefined, diemNano: undefined };
      const sessions = new WalletTokens({ ...options, secret: 'one' });
      const { token, expiresAt } = await sessions.mint(solanaWallet, free);
      assert.ok(token.startsWith('svc_wallet_'));
      assert.equal(expiresAt, isoTime(NOW + 15 * MINUTE_MS));
      assert.equal((await sessions.verify(token)).wallet, solanaWallet);
      const stranger = new WalletTokens({ ...options, secret: 'two' });
      for (const bad of [
        `${token}x`,
        token.slice(0, -1),
        'svc_wallet_',
        'svc_wallet_a.b',
        'x',
        (await stranger.mint(solanaWallet, free)).token,
      ]) {
        await assert.rejects(
          sessions.verify(bad),
          (error: Fault) => error.code === 'X402_INVALID_SIGN_IN',
        );
      }
      mine.advance(15 * MINUTE_MS);
      await assert.rejects(sessions.verify(token), /expired/);
    });

    test('an EVM address has its EIP-55 spelling', () => {
      const known = '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed';
      assert.equal(checksumAddress(known.toLowerCase()), known);
      for (let index = 0; index < 50; index += 1) {
        const { address } = privateKeyToAccount(generatePrivateKey());
        assert.equal(checksumAddress(address), address);
      }
    });

    test('a proof of an EOA or a Solana key costs a fraction of what recovery in JavaScript would', async () => {
      const rounds = 60;
      const headers = await Promise.all(
        Array.from({ length: rounds * 4 }, async () => await structured()),
      );
      const solanaHeaders = Array.from({ length: rounds * 4 }, () => solanaProof());
      // What is measured is what runs on the loop, without what the database does.
      const tx = { query: async () => await Promise.resolve([{}]) };
      const free = {
        transaction: async (work: (tx: unknown) => Promise<unknown>) => await work(tx),
      } as unknown as Store;
      const fast = signInWith(free);
      const cost = async (list: readonly string[]): Promise<number> => {
        const times: number[] = [];
        for (let at = 0; at + 20 <= list.length; at += 20) {
          // CPU of this thread: a busy machine makes no proof dearer.
          const before = process.threadCpuUsage();
          for (const header of list.slice(at, at + 20)) await fast.verify(header, '');
          const { user, system } = process.threadCpuUsage(before);
          times.push((user + system) / 1_000 / 20);
        }
        // The best group is the cost itself; what neighbours on the machine add is not ours.
        return Math.min(...times);
      };
      await cost(headers.slice(0, rounds));
      const evm = await cost(headers.slice(rounds));
      const ed25519 = await cost(solanaHeaders);
      assert.ok(evm < 1.5, `an EOA proof took ${evm} ms`);
      assert.ok(ed25519 < 1.5, `a Solana proof took ${ed25519} ms`);
      if (process.env['FAREBOX_SHOW_TIMES'] !== undefined) console.log({ evm, ed25519 });
    });
  });
});

function wrongCase(address: string): string {
  const at = Array.from(address).findIndex((char, index) => index > 1 && /[a-fA-F]/.test(char));
  const char = address.charAt(at);
  const swapped = char === char.toLowerCase() ? char.toUpperCase() : char.toLowerCase();
  return address.slice(0, at) + swapped + address.slice(at + 1);
}

/** The identity point as key and R, S = 0: OpenSSL alone takes it for any message. */
function forgedSolanaProof(): string {
  const identity = Buffer.alloc(32);
  identity[0] = 1;
  assert.ok(isSmallOrder(identity));
  const signature = Buffer.concat([identity, Buffer.alloc(32)]);
  const fields = fieldsOf({ chainId: SOLANA, type: 'ed25519', address: base58Encode(identity) });
  return encode({ ...fields, signature: base58Encode(signature) });
}

/** JSON cannot carry everything that fast-check makes. */
function safe(value: object): object {
  return JSON.parse(
    JSON.stringify(value, (_key, entry: unknown) =>
      typeof entry === 'bigint' ? String(entry) : entry,
    ),
  ) as object;
}
