/**
 * The keys that sign offers and receipts: the current one, and earlier ones, whose receipts stay valid.
 * All processes share them. A key is published for three minutes before it signs, so that every verifier
 * finds it.
 *
 * A key is an Ed25519 seed, which signs JWS under the `did:key` of its public key. The secp256k1 key that
 * signs EIP-712 is derived from it, so the two are created, stored and replaced together.
 */
import {
  type KeyObject,
  createHmac,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
} from 'node:crypto';
import { assert } from '../../core/assert.ts';
import { base58Decode, base58Encode } from '../../core/base58.ts';
import { type Clock, MINUTE_MS } from '../../core/clock.ts';
import { ed25519KeyOf } from '../../core/wallet-keys.ts';
import type { Store } from '../../db/db.ts';
import { EvmKey } from '../evm-key.ts';
import { sharedSecret } from '../secrets.ts';

export interface PublishedKey {
  /** The public Ed25519 key as multibase: `z6Mk…`. */
  readonly identifier: string;
  /** The EVM address of the EIP-712 key (EIP-55). */
  readonly address: string;
  readonly createdMs: number;
  readonly isCurrent: boolean;
}

interface KeyRow {
  readonly identifier: string;
  readonly address: string;
  /** PKCS #8 PEM; null for the key of the configuration. */
  readonly private_key: string | null;
  readonly created_ms: bigint;
}

export interface SigningPair {
  readonly identifier: string;
  readonly ed25519: KeyObject;
  readonly evm: EvmKey;
}

export interface SigningKeysOptions {
  readonly store: Store;
  readonly clock: Clock;
  /** Key of the configuration as 64 hex digits, instead of one in the database. */
  readonly configured: string | undefined;
}

const ED25519_CODEC = Buffer.from([0xed, 0x01]);
const IDENTIFIER_BYTES = ED25519_CODEC.length + 32;
const EIP712_KEY = 'farebox eip712 signing key';
/** Every process reads the keys once a minute. */
export const PUBLISHED_BEFORE_MS = 3 * MINUTE_MS;
const MAX_KEYS = 4_000;

export class SigningKeys {
  readonly #options: SigningKeysOptions;
  readonly #configured: SigningPair | undefined;
  #rows: readonly KeyRow[] = [];
  #current: SigningPair | undefined;

  constructor(options: SigningKeysOptions) {
    const { configured } = options;
    this.#options = options;
    this.#configured = configured === undefined ? undefined : configuredPair(configured);
  }

  /** Creates the first key, which all processes share. */
  async open(): Promise<void> {
    const { store, clock } = this.#options;
    if (this.#configured !== undefined) await keep(store, this.#configured, clock.nowMs(), null);
    else {
      const pem = await sharedSecret(store, 'receipt-key', newKey);
      await keep(store, pairOf(createPrivateKey(pem)), clock.nowMs(), pem);
    }
    await this.refresh();
  }

  /** Reads the keys that other processes have added. */
  async refresh(): Promise<void> {
    const { store, clock } = this.#options;
    this.#rows = await rowsOf(store);
    this.#current = this.#configured ?? currentOf(this.#rows, clock.nowMs());
  }

  published(): readonly PublishedKey[] {
    const { identifier } = this.current;
    return this.#rows.map((row) => shown(row, row.identifier === identifier));
  }

  /** The key that signs now. */
  get current(): SigningPair {
    assert(this.#current !== undefined, 'the keys were not read');
    return this.#current;
  }
}

export function kidOf(identifier: string): string {
  return `did:key:${identifier}#${identifier}`;
}

export function jwkOf(identifier: string): Readonly<Record<'kty' | 'crv' | 'x', string>> {
  const bytes = base58Decode(identifier.slice(1), IDENTIFIER_BYTES);
  const x = bytes?.subarray(ED25519_CODEC.length).toString('base64url') ?? '';
  return { kty: 'OKP', crv: 'Ed25519', x };
}

export async function listSigningKeys(
  store: Store,
  nowMs: number,
  configured: string | undefined,
): Promise<readonly PublishedKey[]> {
  const rows = await rowsOf(store);
  const current = configured === undefined ? currentOf(rows, nowMs) : configuredPair(configured);
  return rows.map((row) => shown(row, row.identifier === current?.identifier));
}

/** Adds a key, which signs after `PUBLISHED_BEFORE_MS`. */
export async function rotateSigningKey(store: Store, nowMs: number): Promise<PublishedKey> {
  const pem = newKey();
  const pair = pairOf(createPrivateKey(pem));
  await keep(store, pair, nowMs, pem);
  const { identifier, evm } = pair;
  return { identifier, address: evm.address, createdMs: nowMs, isCurrent: false };
}

async function keep(
  store: Store,
  { identifier, evm }: SigningPair,
  nowMs: number,
  pem: string | null,
): Promise<void> {
  await store.query(
    `INSERT INTO payments_signing_key (identifier, address, private_key, created_ms)
     VALUES ($1, $2, $3, $4) ON CONFLICT (identifier) DO NOTHING`,
    [identifier, evm.address, pem, nowMs],
  );
}

async function rowsOf(store: Store): Promise<readonly KeyRow[]> {
  return await store.query<KeyRow>(
    `SELECT identifier, address, private_key, created_ms FROM payments_signing_key
     ORDER BY created_ms DESC, identifier LIMIT ${MAX_KEYS}`,
  );
}

/** The newest key that was published for long enough, or else the oldest. */
function currentOf(rows: readonly KeyRow[], nowMs: number): SigningPair | undefined {
  const own = rows.filter(({ private_key: pem }) => pem !== null);
  const ready = own.find((row) => Number(row.created_ms) <= nowMs - PUBLISHED_BEFORE_MS);
  const pem = (ready ?? own.at(-1))?.private_key;
  return pem === undefined || pem === null ? undefined : pairOf(createPrivateKey(pem));
}

function shown(
  { identifier, address, created_ms: createdMs }: KeyRow,
  isCurrent: boolean,
): PublishedKey {
  return { identifier, address, createdMs: Number(createdMs), isCurrent };
}

function configuredPair(seedHex: string): SigningPair {
  return pairOf(ed25519KeyOf(Buffer.from(seedHex, 'hex')));
}

function newKey(): string {
  return generateKeyPairSync('ed25519').privateKey.export({ type: 'pkcs8', format: 'pem' });
}

function pairOf(ed25519: KeyObject): SigningPair {
  const { d = '' } = ed25519.export({ format: 'jwk' });
  const { x = '' } = createPublicKey(ed25519).export({ format: 'jwk' });
  const publicBytes = Buffer.concat([ED25519_CODEC, Buffer.from(x, 'base64url')]);
  const evm = createHmac('sha256', Buffer.from(d, 'base64url')).update(EIP712_KEY).digest();
  return { identifier: `z${base58Encode(publicBytes)}`, ed25519, evm: new EvmKey(evm) };
}
