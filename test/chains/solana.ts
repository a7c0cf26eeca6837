/**
 * A private Solana: litesvm (the real runtime with the real SPL programs) behind the JSON-RPC calls
 * of clients and payments, with the USDC mint at its mainnet address. Differences from a cluster
 * are corrected: simulation accepts partly signed transactions, a message cannot run twice with
 * other signatures, and sending a known transaction again returns its signature. Slots advance only
 * when a test says so.
 */
import { createHash } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { address, getAddressEncoder, getBase58Decoder, getTransactionDecoder } from '@solana/kit';
import type { Address, Transaction } from '@solana/kit';
import { findAssociatedTokenPda, TOKEN_PROGRAM_ADDRESS } from '@solana-program/token';
import { FailedTransactionMetadata, LiteSVM } from 'litesvm';

export const USDC_MINT = address('EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v');

const MAINNET_GENESIS = '5eykt4UsFv8P8NJdTREpY1vzqKqZKvdpKuc147dw2N9d';
const MINT_BYTES = 82;
const TOKEN_ACCOUNT_BYTES = 165;
const AMOUNT_OFFSET = 64;
const RENT_LAMPORTS = 10_000_000n;
const BLOCKHASH_LIFE = 150n;

export interface SolanaChain {
  readonly rpcUrl: string;
  /** Creates the token account of the owner with that many base units. */
  setTokens(owner: Address, units: bigint): Promise<Address>;
  tokens(owner: Address): Promise<bigint>;
  airdrop(owner: Address, lamports: bigint): void;
  /** Advances by that many blocks, with a new blockhash. */
  advance(blocks: bigint): void;
  /** While set, no transaction is reported as confirmed. */
  hidden: boolean;
  /** While set, confirmed transactions are not final. */
  unfinal: boolean;
  /** Removes a transaction from the chain, as a dropped fork does, and returns its tokens. */
  drop(id: string): void;
  /** Messages executed without an error. */
  readonly executed: number;
  stop(): Promise<void>;
}

interface Landed {
  readonly slot: bigint;
  readonly failed: boolean;
  readonly wire: string;
  readonly accounts: readonly string[];
  /** Lamports of the fee payer before and after. */
  readonly lamports: readonly [number, number];
  /** Token balances of each account before and after. */
  readonly tokens: readonly { readonly before: bigint; readonly after: bigint }[];
}

class SolanaNode {
  readonly #svm: LiteSVM;
  readonly #landed = new Map<string, Landed>();
  readonly #messages = new Set<string>();
  /** Last heights of the blockhashes that were given out. */
  readonly #endOfBlockhash = new Map<string, bigint>();
  height = 1_000n;
  hidden = false;
  unfinal = false;

  constructor(svm: LiteSVM) {
    this.#svm = svm;
  }

  get executed(): number {
    return [...this.#landed.values()].filter((landed) => !landed.failed).length;
  }

  answer(method: string, parameters: readonly unknown[]): unknown {
    const first = parameters[0] as string; // every method below accepts a string or nothing first
    switch (method) {
      case 'getLatestBlockhash':
        return this.#wrap(this.#latestBlockhash());
      case 'isBlockhashValid':
        return this.#wrap(this.height <= (this.#endOfBlockhash.get(first) ?? 0n));
      case 'getGenesisHash':
        return MAINNET_GENESIS;
      case 'getBlockHeight':
        return Number(this.height);
      case 'getSlot':
        return this.#slot(parameters[0] as { commitment?: string } | undefined);
      case 'getBlockTime':
        return Math.floor(Date.now() / 1000);
      case 'getBalance':
        return this.#wrap(Number(this.#svm.getBalance(first as never) ?? 0n));
      case 'getAccountInfo':
        return this.#wrap(this.#account(first, parameters[1]));
      case 'getTokenAccountBalance':
        return this.#wrap({
          amount: String(this.#tokens(first)),
          decimals: 6,
          uiAmount: null,
          uiAmountString: '',
        });
      case 'simulateTransaction':
        return this.#wrap(this.#simulate(first));
      case 'sendTransaction':
        return this.#send(first);
      case 'getSignatureStatuses':
        return this.#wrap((parameters[0] as string[]).map((id) => this.#status(id)));
      case 'getSignaturesForAddress':
        return this.#history(first);
      case 'getTransaction':
        return this.#transaction(
          first,
          parameters[1] as { encoding?: string; commitment?: string } | undefined,
        );
      default:
        throw new Error(`the private chain does not know ${method}`);
    }
  }

  drop(id: string): void {
    const landed = this.#landed.get(id);
    if (landed === undefined) throw new Error(`the private chain has no transaction ${id}`);
    for (const [index, { before, after }] of landed.tokens.entries()) {
      const account = landed.accounts[index];
      if (before === after || account === undefined) continue;
      const { data } = this.#svm.getAccount(account as never) as unknown as { data: Uint8Array };
      const undone = Buffer.from(data);
      const now = undone.readBigUInt64LE(AMOUNT_OFFSET);
      undone.writeBigUInt64LE(now + before - after, AMOUNT_OFFSET);
      place(this.#svm, address(account), undone);
    }
    this.#landed.delete(id);
    this.#messages.delete(hashOf(decode(landed.wire)));
  }

  #latestBlockhash(): unknown {
    const blockhash = this.#svm.latestBlockhash();
    const end = this.height + BLOCKHASH_LIFE;
    this.#endOfBlockhash.set(blockhash, end);
    return { blockhash, lastValidBlockHeight: Number(end) };
  }

  #slot(options: { commitment?: string } | undefined): number {
    // The kit omits default values.
    const isFinal = (options?.commitment ?? 'finalized') === 'finalized';
    return isFinal && this.unfinal ? 0 : Number(this.height);
  }

  #wrap(value: unknown): unknown {
    return { context: { slot: Number(this.height), apiVersion: '3.0.0' }, value };
  }

  #account(key: string, options: unknown): unknown {
    const account = this.#svm.getAccount(key as never);
    if (!account.exists) return null;
    const base = {
      lamports: Number(account.lamports),
      owner: account.programAddress,
      executable: account.executable,
      rentEpoch: 0,
      space: account.data.length,
    };
    const { encoding = 'base64' } = (options ?? {}) as { encoding?: string };
    if (encoding === 'jsonParsed') throw new Error('jsonParsed is not served');
    return { ...base, data: [Buffer.from(account.data).toString('base64'), 'base64'] };
  }

  #tokens(key: string): bigint {
    const account = this.#svm.getAccount(key as never);
    return account.exists && account.data.length === TOKEN_ACCOUNT_BYTES
      ? Buffer.from(account.data).readBigUInt64LE(AMOUNT_OFFSET)
      : 0n;
  }

  #simulate(wire: string): unknown {
    const transaction = decode(wire);
    if (this.#messages.has(hashOf(transaction))) return { err: 'AlreadyProcessed', logs: [] };
    // A partly signed transaction can only be simulated without signature checks.
    this.#svm.withSigverify(false);
    try {
      const result = this.#svm.simulateTransaction(transaction);
      if (result instanceof FailedTransactionMetadata) {
        return { err: errorOf(result), logs: result.meta().logs() };
      }
      return { err: null, logs: result.meta().logs(), unitsConsumed: 1_000 };
    } finally {
      this.#svm.withSigverify(true);
    }
  }

  #send(wire: string): string {
    const transaction = decode(wire);
    const id = getBase58Decoder().decode(Object.values(transaction.signatures)[0] as Uint8Array);
    if (this.#landed.has(id)) return id;
    // A message that ran with other signatures: a cluster drops it silently.
    if (this.#messages.has(hashOf(transaction))) return id;
    const accounts = accountsOf(transaction);
    const before = accounts.map((account) => this.#tokens(account));
    const lamports = (): number => Number(this.#svm.getBalance(accounts[0] as never) ?? 0n);
    const lamportsBefore = lamports();
    const result = this.#svm.sendTransaction(transaction);
    const failed = result instanceof FailedTransactionMetadata;
    // A transaction with a wrong blockhash or signature never enters a block.
    if (failed && /Blockhash|Signature|AlreadyProcessed/.test(errorText(result))) return id;
    this.#messages.add(hashOf(transaction));
    this.height += 1n;
    const tokens = accounts.map((account, index) => ({
      before: before[index] ?? 0n,
      after: this.#tokens(account),
    }));
    this.#landed.set(id, {
      slot: this.height,
      failed,
      wire,
      accounts,
      tokens,
      lamports: [lamportsBefore, lamports()],
    });
    return id;
  }

  #status(id: string): unknown {
    const landed = this.#landed.get(id);
    if (landed === undefined || this.hidden) return null;
    return {
      slot: Number(landed.slot),
      confirmations: null,
      err: landed.failed ? { InstructionError: [2, { Custom: 1 }] } : null,
      confirmationStatus: this.unfinal ? 'confirmed' : 'finalized',
      status: landed.failed ? { Err: {} } : { Ok: null },
    };
  }

  #history(key: string): unknown {
    return [...this.#landed]
      .filter(([, landed]) => landed.accounts.includes(key))
      .map(([id, landed]) => ({
        signature: id,
        slot: Number(landed.slot),
        err: landed.failed ? {} : null,
        memo: null,
        blockTime: null,
        confirmationStatus: 'finalized',
      }))
      .toReversed();
  }

  #transaction(id: string, options: { encoding?: string; commitment?: string } = {}): unknown {
    const { encoding, commitment = 'finalized' } = options;
    const landed = this.#landed.get(id);
    if (landed === undefined || (commitment === 'finalized' && this.unfinal)) return null;
    if (encoding === 'jsonParsed') return parsed(landed);
    return {
      slot: Number(landed.slot),
      blockTime: null,
      transaction: [landed.wire, 'base64'],
      meta: {
        err: landed.failed ? {} : null,
        preBalances: [landed.lamports[0]],
        postBalances: [landed.lamports[1]],
      },
      version: 0,
    };
  }
}

/** Contains only what payments read. */
function parsed(landed: Landed): unknown {
  const balances = (when: 'before' | 'after') =>
    landed.tokens.map((tokens, accountIndex) => ({
      accountIndex,
      mint: USDC_MINT,
      uiTokenAmount: { amount: String(tokens[when]), decimals: 6, uiAmountString: '' },
    }));
  const accountKeys = landed.accounts.map((pubkey) => ({ pubkey }));
  return {
    slot: Number(landed.slot),
    blockTime: null,
    transaction: { message: { accountKeys } },
    meta: { err: null, preTokenBalances: balances('before'), postTokenBalances: balances('after') },
    version: 0,
  };
}

export async function startSolana(): Promise<SolanaChain> {
  // The node stores transactions itself, and can drop them.
  const svm = new LiteSVM().withTransactionHistory(0n);
  placeMint(svm);
  const node = new SolanaNode(svm);
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const call = JSON.parse(Buffer.concat(chunks).toString('utf8')) as {
        id: unknown;
        method: string;
        params?: unknown[];
      };
      response.setHeader('content-type', 'application/json');
      try {
        const result = node.answer(call.method, call.params ?? []);
        response.end(JSON.stringify({ jsonrpc: '2.0', id: call.id, result }));
      } catch (error) {
        const message = error instanceof Error ? error.message : String(error);
        response.end(
          JSON.stringify({ jsonrpc: '2.0', id: call.id, error: { code: -32000, message } }),
        );
      }
    });
  });
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  const { port } = server.address() as AddressInfo; // listening on TCP
  return {
    rpcUrl: `http://127.0.0.1:${port}`,
    setTokens: async (owner: Address, units: bigint) => {
      const account = await tokenAccountOf(owner);
      placeTokens(svm, account, owner, units);
      return account;
    },
    tokens: async (owner: Address) => {
      const account = svm.getAccount(await tokenAccountOf(owner));
      return account.exists ? Buffer.from(account.data).readBigUInt64LE(AMOUNT_OFFSET) : 0n;
    },
    airdrop: (owner: Address, lamports: bigint) => void svm.airdrop(owner, lamports as never),
    advance: (blocks: bigint) => {
      node.height += blocks;
      svm.expireBlockhash();
    },
    get hidden() {
      return node.hidden;
    },
    set hidden(value: boolean) {
      node.hidden = value;
    },
    get unfinal() {
      return node.unfinal;
    },
    set unfinal(value: boolean) {
      node.unfinal = value;
    },
    drop: (id: string) => node.drop(id),
    get executed() {
      return node.executed;
    },
    stop: async () => {
      server.closeAllConnections();
      await new Promise<void>((resolve) => {
        server.close(() => resolve());
      });
    },
  };
}

function placeMint(svm: LiteSVM): void {
  const data = Buffer.alloc(MINT_BYTES);
  data.writeBigUInt64LE(10n ** 15n, 36);
  data[44] = 6;
  data[45] = 1;
  place(svm, USDC_MINT, data);
}

function placeTokens(svm: LiteSVM, account: Address, owner: Address, units: bigint): void {
  const data = Buffer.alloc(TOKEN_ACCOUNT_BYTES);
  const encoder = getAddressEncoder();
  data.set(encoder.encode(USDC_MINT), 0);
  data.set(encoder.encode(owner), 32);
  data.writeBigUInt64LE(units, AMOUNT_OFFSET);
  data[108] = 1;
  place(svm, account, data);
}

function place(svm: LiteSVM, key: Address, data: Buffer): void {
  svm.setAccount({
    address: key,
    data: Uint8Array.from(data),
    executable: false,
    lamports: RENT_LAMPORTS,
    programAddress: TOKEN_PROGRAM_ADDRESS,
    space: BigInt(data.length),
  } as never); // litesvm uses branded types of its own kit
}

async function tokenAccountOf(owner: Address): Promise<Address> {
  const [account] = await findAssociatedTokenPda({
    owner,
    mint: USDC_MINT,
    tokenProgram: TOKEN_PROGRAM_ADDRESS,
  });
  return account;
}

function decode(wire: string): Transaction {
  return getTransactionDecoder().decode(Buffer.from(wire, 'base64'));
}

function hashOf(transaction: Transaction): string {
  return createHash('sha256').update(Uint8Array.from(transaction.messageBytes)).digest('hex');
}

/** Static accounts of a v0 message, which follow its five header bytes. */
function accountsOf(transaction: Transaction): readonly string[] {
  const bytes = transaction.messageBytes;
  const start = (bytes[0] ?? 0) & 0x80 ? 4 : 3;
  const count = bytes[start] ?? 0;
  const decoder = getBase58Decoder();
  return Array.from({ length: count }, (_, index) =>
    decoder.decode(bytes.slice(start + 1 + index * 32, start + 1 + (index + 1) * 32)),
  );
}

function errorText(failed: FailedTransactionMetadata): string {
  return failed.toString();
}

function errorOf(failed: FailedTransactionMetadata): unknown {
  return /AlreadyProcessed/.test(errorText(failed))
    ? 'AlreadyProcessed'
    : { InstructionError: [2, { Custom: 1 }] };
}
