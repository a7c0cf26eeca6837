/** Owners of wallets with USDC, on an EVM chain or on Solana. */
import {
  blockhash,
  getBase64EncodedWireTransaction,
  partiallySignTransactionMessageWithSigners,
  address as solanaAddress,
} from '@solana/kit';
import { getTransferCheckedInstruction } from '@solana-program/token';
import { toHex } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { transferTypedData } from '../../src/payments/evm/chain.ts';
import { SOLANA } from '../../src/payments/networks.ts';
import { messageHash, readSolanaKey } from '../../src/payments/solana/chain.ts';
import { type ChatKind, chat, chatKind } from './callers.ts';
import { OFFER, PAY_TO } from './evm-chain.ts';
import { send } from './http.ts';
import { BLOCKHASH_LIFE, SOLANA_KEYS, SOLANA_USDC, tokenAccountOf } from './solana.ts';
import type { Town } from './town.ts';
import { videoBody } from './video-callers.ts';
import { DefectFound, world } from './world.ts';

const PATIENCE_MS = 60_000;
const UNITS_PER_USD = 1_000_000;
const VALID_SECONDS = 300;
const MAX_TRIES = 6;
/** Some wallets cancel a payment so soon after they have signed it: mostly before or after a block. */
const MAX_CANCEL_MS = [2_500, 8_000];
/** A client can be slow, or its node behind. */
const MAX_BLOCKS_AGO = 10;
const FUNDS = BigInt(1_000 * UNITS_PER_USD);
const COMPUTE_BUDGET = solanaAddress('ComputeBudget111111111111111111111111111111');
const MEMO = solanaAddress('MemoSq4gqABAXKb96qnH8TysNcWxMyWCqXgDLGmfcHr');
const NONCE_BYTES = 16;

interface SignedPayment {
  readonly header: string;
  /** Whether any branch of the chain has contained it. */
  readonly wasReceived: () => boolean;
  /** Makes it fail, if it has not happened before. */
  readonly cancel: () => void;
}

type Wallet = (units: number) => Promise<SignedPayment>;

function headerOf(offer: object, payload: object): string {
  const envelope = { x402Version: 2, accepted: { ...offer, scheme: 'exact' }, payload };
  return Buffer.from(JSON.stringify(envelope)).toString('base64');
}

export async function evmWallet({ chain, wallets }: Town): Promise<Wallet> {
  const { random } = world();
  const account = privateKeyToAccount(toHex(random.bytes(32)));
  chain.mint(account.address.toLowerCase(), FUNDS);
  wallets.push(account.address);
  return async (units) => {
    const nonce = toHex(random.bytes(32));
    const authorization = {
      from: account.address,
      to: PAY_TO,
      value: String(units),
      validAfter: '0',
      validBefore: String(world().seconds + VALID_SECONDS),
      nonce,
    };
    const typed = transferTypedData(OFFER, authorization as never); // viem converts the numbers
    const signature = await account.signTypedData(typed);
    return {
      header: headerOf(OFFER, { authorization, signature }),
      wasReceived: () => chain.hasEverReceived(nonce),
      cancel: () => chain.cancel({ from: account.address, nonce }),
    };
  };
}

/** Cancels a payment by moving all of its money elsewhere. */
export async function solanaWallet({ solana, wallets }: Town): Promise<Wallet> {
  const { random } = world();
  const authority = await readSolanaKey(random.bytes(32).toString('hex'));
  const source = await tokenAccountOf(authority.address);
  solana.mint(source, FUNDS);
  const destination = await tokenAccountOf(solana.payTo);
  const feePayer = (await readSolanaKey(SOLANA_KEYS.feePayer)).address;
  const { payTo } = solana;
  const offer = { network: SOLANA, asset: SOLANA_USDC, payTo, extra: { feePayer } };
  wallets.push(authority.address);
  return async (amount) => {
    if (solana.head.balances.get(source)! < FUNDS / 2n) solana.mint(source, FUNDS);
    const { blockhash: recent, height } = solana.blocks.at(-random.between(1, MAX_BLOCKS_AGO))!;
    const payment = { source, mint: SOLANA_USDC, destination, authority, amount, decimals: 6 };
    const message = {
      version: 0 as const,
      feePayer: { address: feePayer },
      lifetimeConstraint: {
        blockhash: blockhash(recent),
        lastValidBlockHeight: BigInt(height + BLOCKHASH_LIFE),
      },
      instructions: [
        // Limit of compute units, and their price.
        { programAddress: COMPUTE_BUDGET, data: Uint8Array.of(2, 0x20, 0x4e, 0, 0) },
        { programAddress: COMPUTE_BUDGET, data: Uint8Array.of(3, 1, 0, 0, 0, 0, 0, 0, 0) },
        getTransferCheckedInstruction(payment),
        { programAddress: MEMO, data: Buffer.from(random.bytes(NONCE_BYTES).toString('hex')) },
      ],
    };
    const signed = await partiallySignTransactionMessageWithSigners(message);
    const id = messageHash(signed);
    return {
      header: headerOf(offer, { transaction: getBase64EncodedWireTransaction(signed) }),
      wasReceived: () => solana.hasEverReceived(id),
      cancel: () => solana.empty(source),
    };
  };
}

/** Pays for credit, a chat or a video until the run is over, and repeats a payment that has no final response. */
export async function payByWallet(town: Town, name: string, sign: Wallet): Promise<void> {
  const { random } = world();
  for (let count = 1; !town.isOver; count += 1) {
    await world().sleep(random.between(1_000, 10_000));
    const units = random.between(5 * UNITS_PER_USD, 12 * UNITS_PER_USD);
    const { header, wasReceived, cancel } = await sign(units);
    const what = random.pick(['credit', 'video', chatKind()] as const);
    if (random.once(3)) {
      world().schedule(random.between(1, random.pick(MAX_CANCEL_MS)), () => {
        world().note(`${name} cancels payment ${count}`);
        cancel();
        town.happens('cancellation');
      });
    }
    for (let tries = 0; tries < MAX_TRIES; tries += 1) {
      const copies = random.once(6) ? 2 : 1;
      const replies = await Promise.all(
        Array.from({ length: copies }, () => payOnce(town, name, header, what)),
      );
      const statuses = replies.map((reply) => reply?.status ?? 0);
      world().note(`${name} saw ${statuses.join(' and ')} for payment ${count}`);
      if (statuses.includes(200) && !wasReceived()) {
        throw new DefectFound(`Payment ${count} is confirmed, and the chain never contained it`);
      }
      if (statuses.some((status) => status >= 200 && status < 500 && status !== 429)) break;
      await world().sleep(random.between(500, 5_000));
    }
  }
}

async function payOnce(
  town: Town,
  name: string,
  header: string,
  what: ChatKind | 'credit' | 'video',
) {
  const { random } = world();
  const headers = { 'payment-signature': header };
  const patienceMs = random.once(4) ? random.between(1, 3_000) : PATIENCE_MS;
  const url = town.url();
  if (what === 'credit') return await send(`${url}/x402/top-up`, { headers, patienceMs });
  if (what !== 'video') return await chat(town, { ...what, caller: name, headers, patienceMs });
  return await send(`${url}/video/queue`, { headers, patienceMs, body: videoBody(name) });
}
