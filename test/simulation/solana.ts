/**
 * Solana with USDC in the world: slots, a pool of transactions, and forks. It checks the signatures, the
 * blockhash and the balance of each transaction, and runs its transfers of tokens.
 */
import { hash, verify } from 'node:crypto';
import {
  type Address,
  type KeyPairSigner,
  address,
  createKeyPairSignerFromPrivateKeyBytes,
  decompileTransactionMessage,
  getAddressEncoder,
  getBase58Decoder,
  getCompiledTransactionMessageDecoder,
  getTransactionDecoder,
} from '@solana/kit';
import { TOKEN_PROGRAM_ADDRESS, findAssociatedTokenPda } from '@solana-program/token';
import { ed25519Key } from './edges.ts';
import { Machine, world } from './world.ts';

export const SOLANA_USDC = address('EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v');
const SLOT_MS = 800;
export const FINAL_SLOTS = 32;
/** A transaction runs in a block at most so far above that of its blockhash. */
export const BLOCKHASH_LIFE = 150;
const TRANSFER_CHECKED = 12;
const TREASURY_UNITS = 1_000_000_000_000n;
/** Seeds of keys of the operator. */
export const SOLANA_KEYS = { feePayer: '44'.repeat(32), refunds: '55'.repeat(32) };
const RECEIVER = '66'.repeat(32);

export interface Landed {
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
  readonly balances: ReadonlyMap<string, bigint>;
}

type Message = ReturnType<typeof readWire>;

export class Solana {
  readonly #machine = new Machine('solana');
  readonly #pool = new Map<string, string>();
  readonly blocks: SolanaBlock[] = [];
  #slot = 1_000;
  /** Token accounts whose owners spend all they have in the next block. */
  readonly #emptied = new Set<string>();
  /** Units of each payment that any branch has ever contained, by message. */
  readonly #received = new Map<string, bigint>();
  /** Owner of the token account that receives all payments. */
  payTo!: Address;
  #receiver = '';
  #treasury = '';

  async start(): Promise<void> {
    this.#add([], new Map());
    for (let at = 0; at < FINAL_SLOTS; at += 1) this.#produce();
    this.payTo = (await signerOf(RECEIVER)).address;
    this.#receiver = await this.mint(this.payTo, 0n);
    this.#treasury = await this.mint((await signerOf(SOLANA_KEYS.refunds)).address, TREASURY_UNITS);
    const next = (): void => {
      this.#produce();
      world().schedule(SLOT_MS, next, this.#machine);
    };
    world().schedule(SLOT_MS, next, this.#machine);
  }

  /** Returns the token account of the owner, with so many units in all blocks. */
  async mint(owner: Address, units: bigint): Promise<string> {
    const account = await tokenAccountOf(owner);
    for (const { balances } of this.blocks) (balances as Map<string, bigint>).set(account, units);
    return account;
  }

  get head(): SolanaBlock {
    return this.blocks.at(-1)!;
  }

  /** Units of payments in the chain. */
  get received(): bigint {
    return this.head.balances.get(this.#receiver)!;
  }

  get refunded(): bigint {
    return TREASURY_UNITS - this.head.balances.get(this.#treasury)!;
  }

  get everReceived(): bigint {
    return [...this.#received.values()].reduce((sum, units) => sum + units, 0n);
  }

  hasEverReceived(wire: string): boolean {
    return this.#received.has(readWire(wire).hash);
  }

  get waiting(): ReadonlyMap<string, string> {
    return this.#pool;
  }

  empty(account: string): void {
    this.#emptied.add(account);
  }

  /** Accepts a transaction for a later block, and returns its id. */
  accept(wire: string): string {
    const { id } = readWire(wire);
    // Leaders drop some transactions.
    if (!world().random.once(8)) this.#pool.set(id, wire);
    return id;
  }

  /** Another branch replaces the newest blocks. Half of their transactions are lost. */
  reorganise(depth: number): void {
    const from = Math.max(this.blocks.length - depth, this.blocks.length - FINAL_SLOTS + 1);
    const dropped = this.blocks.splice(from);
    world().note(`Solana drops ${dropped.length} blocks`);
    for (const { landed } of dropped) {
      for (const { id, wire } of landed) if (world().random.once(2)) this.#pool.set(id, wire);
    }
    for (let left = dropped.length; left > 0; left -= 1) this.#produce();
  }

  #produce(): void {
    const { random } = world();
    const balances = new Map(this.head.balances);
    for (const account of this.#emptied) balances.set(account, 0n);
    this.#emptied.clear();
    const landed: Landed[] = [];
    for (const [id, wire] of this.#pool) {
      if (random.once(3)) continue;
      this.#pool.delete(id);
      const message = readWire(wire);
      if (problemOf(message, this.blocks, landed) !== undefined) continue;
      const units = transfer(message, balances);
      if (units !== undefined && message.transfer?.to === this.#receiver)
        this.#received.set(message.hash, units);
      const { hash: own, transfer: moved } = message;
      landed.push({ id, wire, hash: own, from: moved?.from, hasFailed: units === undefined });
    }
    this.#add(landed, balances);
  }

  #add(landed: readonly Landed[], balances: ReadonlyMap<string, bigint>): void {
    const { random, nowMs } = world();
    // Some slots have no block.
    this.#slot += random.once(10) ? 2 : 1;
    this.blocks.push({
      slot: this.#slot,
      height: this.blocks.length,
      blockhash: getBase58Decoder().decode(random.bytes(32)),
      seconds: Math.floor(nowMs / 1_000),
      landed,
      balances,
    });
  }
}

/** The key of a seed in hexadecimal digits. */
export async function signerOf(seed: string): Promise<KeyPairSigner> {
  return await createKeyPairSignerFromPrivateKeyBytes(Buffer.from(seed, 'hex'));
}

export async function tokenAccountOf(owner: Address): Promise<Address> {
  const token = { mint: SOLANA_USDC, tokenProgram: TOKEN_PROGRAM_ADDRESS };
  return (await findAssociatedTokenPda({ ...token, owner }))[0];
}

/** The parts of a transaction in base64 that matter here. Its id is its first signature. */
function readWire(wire: string) {
  const { messageBytes, signatures } = getTransactionDecoder().decode(Buffer.from(wire, 'base64'));
  const compiled = getCompiledTransactionMessageDecoder().decode(messageBytes);
  const { instructions } = decompileTransactionMessage(compiled);
  const found = instructions.find(
    (one) => one.programAddress === TOKEN_PROGRAM_ADDRESS && one.data?.[0] === TRANSFER_CHECKED,
  );
  const bytes = Uint8Array.from(messageBytes);
  const [from, , to] = found?.accounts ?? [];
  const signer = Object.values(signatures)[0];
  return {
    id: signer ? getBase58Decoder().decode(signer) : '',
    hash: hash('sha256', bytes),
    bytes,
    signatures,
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
    const key = ed25519Key(Uint8Array.from(getAddressEncoder().encode(address(signer))));
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
