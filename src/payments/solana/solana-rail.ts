/**
 * The Solana rail: `exact` payments in SPL tokens, checked and co-signed by the official scheme
 * with a journaled signer, or sent by an external facilitator; found by their status in both.
 */
import type { FacilitatorClient } from '@x402/core/server';
import { SettlementCache, toFacilitatorSvmSigner } from '@x402/svm';
import type { FacilitatorSvmSigner } from '@x402/svm';
import { ExactSvmScheme } from '@x402/svm/exact/facilitator';
import { address } from '@solana/kit';
import type { Address, KeyPairSigner } from '@solana/kit';
import { assert } from '../../core/assert.ts';
import { agreedEvidence } from '../agreement.ts';
import { chainReason } from '../chain-reason.ts';
import type { RailOptions } from '../evm/evm-rail.ts';
import { networkFacts, unitsToNano } from '../networks.ts';
import { chainProblems, servedBy } from '../nodes.ts';
import { officialRequest } from '../official-request.ts';
import type { SignedPayment } from '../payment.ts';
import { USED_BEFORE } from '../rail.ts';
import type { Attempt, Evidence, Journal, Rail, RailHealth, Verdict } from '../rail.ts';
import type { RailOffer } from '../requirements.ts';
import { depthFor } from '../settings.ts';
import type { SolanaDepth, SolanaSettings } from '../settings.ts';
import { isSignedByEd25519 } from '../sign-in/signatures.ts';
import { decodeWire, openSolanaNodes, transactionId } from './chain.ts';
import type { SolanaChain, SolanaNodes } from './chain.ts';
import { BLOCKHASH_LIFE_BLOCKS, findSolanaPayment } from './evidence.ts';
import type { SolanaPayment } from './evidence.ts';
import { readSolanaKey } from './keys.ts';
import { readSolanaPayment } from './read.ts';
import { solanaReceived } from './received.ts';
import { solanaRefunds } from './refunds.ts';
import { associatedAccount, SYSTEM_PROGRAM } from './token.ts';

export interface SolanaRail extends Rail {
  /** The official scheme on the shared fee payer, for the exposed facilitator. */
  openScheme(): ExactSvmScheme;
}

/** After this answer the status of the transaction decides: its structure was found good before. */
const UNCLEAR = new Set(['invalid_exact_svm_transaction_simulation_failed']);
const LAMPORTS_PER_SOL = 1e9;
/** CAIP-30: a cluster is named by the beginning of its genesis hash. */
const CAIP2_REFERENCE_CHARS = 32;
/** Base fee of two signatures; priority fees come on top and are capped. */
const LEAST_LAMPORTS = 1_000_000n;

export async function openSolanaRail(
  settings: SolanaSettings,
  options: RailOptions,
): Promise<SolanaRail> {
  const { chain, each } = openSolanaNodes(settings.rpcUrl, options.clock);
  const feePayer =
    settings.feePayerKey === undefined ? undefined : await readSolanaKey(settings.feePayerKey);
  const offer = await solanaOffer(settings, options.external, feePayer);
  const feePayerAddress = address(offer.extra['feePayer'] ?? '');
  const base = baseSigner(chain, settings.network, feePayer, feePayerAddress);
  const find: Context['find'] = async (payment, attempt, depth) => {
    const witnesses = each.map((node) => ({
      look: async () => await findSolanaPayment(node, payment, attempt, depth),
      newestSeconds: async () => await node.newestSeconds(),
    }));
    return await agreedEvidence(witnesses, options.clock);
  };
  const context: Context = {
    settings,
    options,
    chain,
    find,
    offer,
    base,
    feePayer,
    feePayerAddress,
  };
  return {
    network: settings.network,
    offer,
    read: async (envelope) => await readSolanaPayment(envelope, offer, options.limits),
    readShape: async (envelope) => await readSolanaPayment(envelope, offer, undefined),
    isSigned: async (payment) => await isSigned(payment),
    verify: async (payment) => await verify(context, payment),
    settle: async (payment, journal) => await settle(context, payment, journal),
    position: async () => {
      const [slot, height] = await Promise.all([
        chain.slot('processed'),
        chain.height('confirmed'),
      ]);
      return {
        startHeight: slot,
        startBlock: undefined,
        expiresAt: height + BLOCKHASH_LIFE_BLOCKS,
      };
    },
    heights: async () => ({
      // Final is what all of them say is final.
      final: await leastSlot(each),
      latest: await chain.slot('confirmed'),
    }),
    findPayment: async (payment, attempt) => await findPayment(context, payment, attempt),
    received: async (search) => await solanaReceived(chain, search),
    rebroadcast: async (raw) => {
      await chain.send(raw);
      return 'sent';
    },
    health: async () => await solanaHealth(settings, { chain, each }, offer, feePayer?.address),
    refunds: await solanaRefunds({ settings, chain, feePayer, offer, find }),
    openScheme: () => new ExactSvmScheme(base, undefined, limitsOf(settings)),
  };
}

async function leastSlot(nodes: SolanaNodes['each']): Promise<bigint> {
  const slots = await Promise.all(nodes.map(async (node) => await node.slot('finalized')));
  return slots.reduce((least, one) => (one < least ? one : least));
}

interface Context {
  readonly settings: SolanaSettings;
  readonly options: RailOptions;
  readonly chain: SolanaChain;
  /** What the nodes show of a transaction. */
  readonly find: (
    payment: SolanaPayment,
    attempt: Attempt,
    depth: SolanaDepth,
  ) => Promise<Evidence>;
  readonly offer: RailOffer;
  readonly base: FacilitatorSvmSigner;
  readonly feePayer: KeyPairSigner | undefined;
  readonly feePayerAddress: Address;
}

/** What a payer may make us spend on one payment. */
function limitsOf(settings: SolanaSettings): {
  maxPriorityFeeMicroLamports: number;
  maxComputeUnits: number;
  maxRequiredSignatures: number;
} {
  return {
    maxPriorityFeeMicroLamports: settings.maxPriorityFeeMicroLamports,
    maxComputeUnits: settings.maxComputeUnits,
    maxRequiredSignatures: 2,
  };
}

function schemeOf(context: Context, signer: FacilitatorSvmSigner): ExactSvmScheme {
  return new ExactSvmScheme(signer, new NoSettlementCache(), {
    ...limitsOf(context.settings),
    pendingSettlementStore: NO_PENDING_STORE,
  });
}

/** The payer's own signature over the message; the slot of the fee payer is ours to fill. */
async function isSigned(payment: SignedPayment): Promise<boolean> {
  const { messageBytes, signatures } = decodeWire(solanaOf(payment).transaction);
  const signature = signatures[address(payment.wallet)];
  if (signature === undefined || signature === null) return false;
  return await isSignedByEd25519(payment.wallet, Uint8Array.from(messageBytes), signature);
}

async function verify(context: Context, payment: SignedPayment): Promise<Verdict> {
  const { base, options } = context;
  try {
    const request = officialRequest(payment, options.maxTimeoutSeconds);
    const result = await schemeOf(context, base).verify(...request);
    if (result.isValid) return { kind: 'valid' };
    const reason = chainReason(result.invalidReason ?? 'unknown');
    return { kind: UNCLEAR.has(reason) ? 'unclear' : 'rejected', reason };
  } catch (error) {
    // Shapes were checked before, so what is left is a cluster that does not answer.
    return { kind: 'unclear', reason: chainReason(error) };
  }
}

async function settle(context: Context, payment: SignedPayment, journal: Journal): Promise<void> {
  const { base, chain, options } = context;
  const request = officialRequest(payment, options.maxTimeoutSeconds);
  if (options.external !== undefined) {
    await options.external.settle(...request);
    return;
  }
  const signer = journaledSigner(base, chain, options, async (id, wire) => {
    await journal(payment.key, id, wire);
  });
  await schemeOf(context, signer).settle(...request);
}

async function findPayment(
  context: Context,
  payment: SignedPayment,
  attempt: Attempt,
): Promise<Evidence> {
  const known = await withId(context, payment, attempt);
  const depth = depthFor(context.settings.confirmations, unitsToNano(payment.amountUnits));
  const evidence = await context.find(solanaOf(payment), known, depth ?? 'confirmed');
  // Two ledgers with one fee payer make the same id, so the slot alone tells who came first.
  if (evidence.kind === 'paid' && evidence.height < attempt.startHeight) {
    return { kind: 'final', reason: USED_BEFORE };
  }
  if (evidence.kind !== 'open' || attempt.transaction !== undefined) return evidence;
  return { kind: 'open', attempt: evidence.attempt === 'waiting' ? 'waiting' : 'none' };
}

/** Our signature is deterministic, so the id of a payment is known without a journal. */
async function withId(
  context: Context,
  payment: SignedPayment,
  attempt: Attempt,
): Promise<Attempt> {
  const { base, feePayer, feePayerAddress, settings, options } = context;
  const isOurs =
    feePayer?.address === payment.offer.extra['feePayer'] && options.external === undefined;
  if (attempt.transaction !== undefined || !isOurs) return attempt;
  const { transaction } = solanaOf(payment);
  const wire = await base.signTransaction(transaction, feePayerAddress, settings.network);
  return { ...attempt, transaction: transactionId(decodeWire(wire)) };
}

async function solanaOffer(
  settings: SolanaSettings,
  external: FacilitatorClient | undefined,
  feePayer: KeyPairSigner | undefined,
): Promise<RailOffer> {
  const facts = networkFacts(settings.network);
  const payer =
    external === undefined ? feePayer?.address : await externalFeePayer(external, settings.network);
  if (payer === undefined) {
    throw new Error(
      'payments.solana needs a feePayerKey, or an external facilitator that names one',
    );
  }
  return {
    network: settings.network,
    asset: settings.asset ?? facts?.usdc ?? '',
    payTo: settings.payTo,
    extra: {
      name: facts?.domainName ?? 'USD Coin',
      version: facts?.domainVersion ?? '2',
      feePayer: payer,
    },
  };
}

async function externalFeePayer(
  external: FacilitatorClient,
  network: string,
): Promise<string | undefined> {
  const { kinds } = await external.getSupported();
  const kind = kinds.find((one) => one.scheme === 'exact' && one.network === network);
  const feePayer = kind?.extra?.['feePayer'];
  return typeof feePayer === 'string' ? feePayer : undefined;
}

/** The official signer on our RPC; without a key of our own it can check but not sign. */
function baseSigner(
  chain: SolanaChain,
  network: string,
  feePayer: KeyPairSigner | undefined,
  feePayerAddress: Address,
): FacilitatorSvmSigner {
  // The official signer takes a client for each network; ours has the same methods.
  const rpc = { [network]: chain.rpc } as never;
  if (feePayer !== undefined && feePayer.address === feePayerAddress) {
    return toFacilitatorSvmSigner(feePayer, rpc);
  }
  const checker = toFacilitatorSvmSigner({ address: feePayerAddress } as never, rpc); // never signs
  return {
    ...checker,
    signTransaction: async () => await Promise.reject(new Error('The external facilitator signs')),
  };
}

/**
 * The same signer, with the id and the bytes journaled before they are sent. After that it reports
 * no failure: the scheme would print it with the node's address, and the chain decides anyway.
 */
function journaledSigner(
  base: FacilitatorSvmSigner,
  chain: SolanaChain,
  options: RailOptions,
  journal: (id: string, wire: string) => Promise<void>,
): FacilitatorSvmSigner {
  const { clock, log, settleWaitMs, pollMs } = options;
  return {
    ...base,
    sendTransaction: async (wire) => {
      const id = transactionId(decodeWire(wire));
      await journal(id, wire);
      try {
        await chain.send(wire);
      } catch (error) {
        // The reply may be lost while the cluster has the transaction.
        log.warn({ reason: chainReason(error) }, 'a broadcast gave no answer');
      }
      return id;
    },
    confirmTransaction: async (id) => {
      const deadlineMs = clock.monotonicMs() + settleWaitMs;
      while (clock.monotonicMs() < deadlineMs) {
        const status = await chain.status(id).catch(() => undefined); // asked again below
        if (status?.kind === 'confirmed' || status?.kind === 'failed') return;
        await clock.sleep(pollMs);
      }
    },
  };
}

/** The database is what keeps a payment from being settled twice; the memory of the scheme only misleads. */
class NoSettlementCache extends SettlementCache {
  override isDuplicate(): boolean {
    return false;
  }
}

const NO_PENDING_STORE = {
  get: async (): Promise<undefined> => await Promise.resolve(undefined),
  set: async (): Promise<void> => await Promise.resolve(),
  delete: async (): Promise<void> => await Promise.resolve(),
};

function solanaOf(payment: SignedPayment): SolanaPayment {
  assert(payment.authorization.kind === 'solana', 'not a Solana payment');
  return payment.authorization;
}

async function solanaHealth(
  settings: SolanaSettings,
  { chain, each }: SolanaNodes,
  offer: RailOffer,
  feePayer: Address | undefined,
): Promise<RailHealth> {
  const served = await servedBy(
    each,
    async (node) => `solana:${(await node.genesisHash()).slice(0, CAIP2_REFERENCE_CHARS)}`,
  );
  const { problems, isRight } = chainProblems(served, settings.network);
  const receiver = await associatedAccount(address(offer.payTo), address(offer.asset));
  const holder = await chain.ownerOf(address(offer.payTo));
  // A wallet belongs to the System program, or is not there before it first holds SOL.
  const isWallet = holder === undefined || holder === SYSTEM_PROGRAM;
  if (!isWallet) {
    problems.push(
      `The receiver ${offer.payTo} is an account of the program ${holder}, not a wallet: name the owner, or the money is lost`,
    );
  }
  const hasReceiver = isWallet && (await chain.ownerOf(receiver)) !== undefined;
  if (isWallet && !hasReceiver) {
    problems.push(
      `The token account ${receiver} of the receiver does not exist: create it, or no payment can arrive`,
    );
  }
  const gasBalance = feePayer === undefined ? undefined : await chain.balance(feePayer);
  if (
    gasBalance !== undefined &&
    gasBalance < BigInt(Math.round(settings.warnBelowSol * LAMPORTS_PER_SOL))
  ) {
    problems.push(`The fee payer ${feePayer} holds less than ${settings.warnBelowSol} SOL`);
  }
  const canPay = gasBalance === undefined || gasBalance >= LEAST_LAMPORTS;
  if (!canPay) problems.push('The fee payer cannot pay for a settlement');
  return {
    network: settings.network,
    isReady: isRight && hasReceiver && canPay,
    problems,
    gasAddress: feePayer,
    gasBalance,
  };
}
