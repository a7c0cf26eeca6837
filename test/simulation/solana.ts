/**
 * Solana with USDC in the world: slots, a pool of transactions, and forks. It checks the signatures, the
 * blockhash and the balance of each transaction, and runs its transfers of tokens.
 */
import { createPublicKey, verify } from 'node:crypto';
import {
  type Address,
  address,
  decompileTransactionMessage,
  getBase58Decoder,
  getBase58Encoder,
  getCompiledTransactionMessageDecoder,
} from '@solana/kit';
import { TOKEN_PROGRAM_ADDRESS, findAssociatedTokenPda } from '@solana-program/token';
import {
  decodeWire,
  messageHash,
  readSolanaKey,
  transactionId,
} from '../../src/payments/solana/chain.ts';
import { Chain } from './chain.ts';
import { world } from './world.ts';

export const SOLANA_USDC = address('EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v');
const SLOT_MS = 800;
export const FINAL_SLOTS = 32;
/** A transaction runs in a block at most so far above that of its blockhash. */
export const BLOCKHASH_LIFE = 150;
const TRANSFER_CHECKED = 12;
/** Seeds of keys of the operator. */
export const SOLANA_KEYS = { feePayer: '44'.repeat(32), refunds: '55'.repeat(32) };
const RECEIVER = '66'.repeat(32);

interface Landed {
  readonly id: string;
  readonly wire: string;
  /** The SHA-256 of its message. */
  readonly hash: string;
  /** The token account that pays. */
  readonly from: string | undefined;
  readonly hasFailed: boolean;
}

export interface SolanaBlock {
  readonly slot: number;
  readonly height: number;
  readonly blockhash: string;
  readonly seconds: number;
  readonly landed: readonly Landed[];
  /** Units by token account. */
  readonly balances: Map<string, bigint>;
}

type Message = ReturnType<typeof readWire>;

/** Transactions wait in base64, by their ids. */
export class Solana extends Chain<SolanaBlock, string> {
  #slot = 1_000;
  /** Token accounts whose owners spend all they have in the next block. */
  readonly #emptied = new Set<string>();
  /** Owner of the token account that receives all payments. */
  payTo!: Address;
  #receiver = '';

  constructor() {
    super('Solana', SLOT_MS, FINAL_SLOTS);
  }

  async start(): Promise<void> {
    this.#add([], new Map());
    for (let at = 0; at < FINAL_SLOTS; at += 1) this.produce();
    this.payTo = (await readSolanaKey(RECEIVER)).address;
    this.#receiver = await tokenAccountOf(this.payTo);
    const treasury = (await readSolanaKey(SOLANA_KEYS.refunds)).address;
    this.open(this.#receiver, await tokenAccountOf(treasury));
    this.produceRegularly();
  }

  empty(account: string): void {
    this.#emptied.add(account);
  }

  /** Accepts a transaction for a later block, and returns its id. */
  accept(wire: string): string {
    const id = transactionId(decodeWire(wire));
    // Leaders drop some transactions.
    if (!world().random.once(8)) this.pool.set(id, wire);
    return id;
  }

  /** Half of the transactions are lost. */
  protected override drop({ landed }: SolanaBlock): void {
    for (const { id, wire } of landed) if (world().random.once(2)) this.pool.set(id, wire);
  }

  protected override produce(): void {
    const { random } = world();
    const balances = new Map(this.head.balances);
    for (const account of this.#emptied) balances.set(account, 0n);
    this.#emptied.clear();
    const landed: Landed[] = [];
    for (const [id, wire] of this.pool) {
      if (random.once(3)) continue;
      this.pool.delete(id);
      const message = readWire(wire);
      if (problemOf(message, this.blocks, landed) !== undefined) continue;
      const units = transfer(message, balances);
      if (units !== undefined && message.transfer?.to === this.#receiver)
        this.payments.set(message.hash, units);
      const { hash: own, transfer: moved } = message;
      landed.push({ id, wire, hash: own, from: moved?.from, hasFailed: units === undefined });
    }
    this.#add(landed, balances);
  }

  #add(landed: readonly Landed[], balances: Map<string, bigint>): void {
    const { random, seconds } = world();
    // Some slots have no block.
    this.#slot += random.once(10) ? 2 : 1;
    const blockhash = getBase58Decoder().decode(random.bytes(32));
    const { length: height } = this.blocks;
    this.blocks.push({ slot: this.#slot, height, blockhash, seconds, landed, balances });
  }
}

export async function tokenAccountOf(owner: Address): Promise<Address> {
  const token = { mint: SOLANA_USDC, tokenProgram: TOKEN_PROGRAM_ADDRESS };
  return (await findAssociatedTokenPda({ ...token, owner }))[0];
}

/** The parts of a transaction in base64 that matter here. */
function readWire(wire: string) {
  const transaction = decodeWire(wire);
  const compiled = getCompiledTransactionMessageDecoder().decode(transaction.messageBytes);
  const { instructions } = decompileTransactionMessage(compiled);
  const found = instructions.find(
    (one) => one.programAddress === TOKEN_PROGRAM_ADDRESS && one.data?.[0] === TRANSFER_CHECKED,
  );
  const [from, , to] = found?.accounts ?? [];
  return {
    hash: messageHash(transaction),
    bytes: Uint8Array.from(transaction.messageBytes),
    signatures: transaction.signatures,
    blockhash: compiled.lifetimeToken,
    transfer: found && {
      from: String(from?.address),
      to: String(to?.address),
      units: Buffer.from(found.data as Uint8Array).readBigUInt64LE(1),
    },
  };
}

/** Why no block after `blocks` contains the transaction; `undefined` if one can. */
function problemOf(
  { bytes, hash: own, signatures, blockhash }: Message,
  blocks: readonly SolanaBlock[],
  landed: readonly Landed[],
): string | undefined {
  if (!isValid(blockhash, blocks)) return 'BlockhashNotFound';
  const recent = [...blocks.slice(-BLOCKHASH_LIFE).flatMap((block) => block.landed), ...landed];
  if (recent.some((one) => one.hash === own)) return 'AlreadyProcessed';
  const isSigned = Object.entries(signatures).every(([signer, signature]) => {
    const x = Buffer.from(getBase58Encoder().encode(signer)).toString('base64url');
    const key = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' });
    return signature !== null && verify(null, bytes, key, signature);
  });
  return isSigned ? undefined : 'SignatureFailure';
}

export function isValid(blockhash: string, blocks: readonly SolanaBlock[]): boolean {
  const recent = blocks.slice(-BLOCKHASH_LIFE - 1);
  return recent.some((block) => block.blockhash === blockhash);
}

/** Moves the tokens; returns their units, or `undefined` if the transaction fails. */
function transfer({ transfer: moved }: Message, balances: Map<string, bigint>): bigint | undefined {
  if (moved === undefined) return undefined;
  const { from, to, units } = moved;
  const balance = balances.get(from) ?? 0n;
  if (balance < units) return undefined;
  balances.set(from, balance - units);
  balances.set(to, (balances.get(to) ?? 0n) + units);
  return units;
}

/** The error of a transaction, signed or not, that would run now. */
export function simulated(wire: string, blocks: readonly SolanaBlock[]): unknown {
  const message = readWire(wire);
  const problem = problemOf({ ...message, signatures: {} }, blocks, []);
  if (problem !== undefined) return problem;
  const units = transfer(message, new Map(blocks.at(-1)!.balances));
  return units === undefined ? { InstructionError: [2, { Custom: 1 }] } : null;
}
