/**
 * The Solana rail: `exact` payments in SPL tokens. The official scheme verifies, co-signs and sends them
 * through `#journaledSigner`, or an external facilitator sends them.
 */
import type { PendingSettlementStore } from '@x402/core/facilitator';
import { type FacilitatorSvmSigner, SettlementCache, toFacilitatorSvmSigner } from '@x402/svm';
import { ExactSvmScheme } from '@x402/svm/exact/facilitator';
import { type KeyPairSigner, address } from '@solana/kit';
import { fetchMint, findAssociatedTokenPda, TOKEN_PROGRAM_ADDRESS } from '@solana-program/token';
import { remember } from '../bounded.ts';
import { chainReason } from '../chain-log.ts';
import { type Envelope, checkAccepted } from '../envelope.ts';
import type { ExternalFacilitator } from '../extensions/external-facilitator.ts';
import { PendingSettlements } from '../extensions/pending-settlements.ts';
import { unitsToNano, USDC_DECIMALS, solanaUsdc } from '../networks.ts';
import { Agreement } from '../nodes.ts';
import type { SignedPayment } from '../payment.ts';
import {
  NO_PENDING_STORE,
  decimalsProblem,
  healthOf,
  officialRequest,
  verdictOf,
} from '../rail-checks.ts';
import { storeSent } from '../gas.ts';
import { USED_BEFORE } from '../rail.ts';
import type {
  Attempt,
  Evidence,
  EvidenceDepth,
  GasReader,
  Journal,
  Position,
  Rail,
  RailHealth,
  RailOptions,
  Received,
  ReceivedSearch,
  RefundRail,
  Verdict,
} from '../rail.ts';
import type { RailOffer } from '../requirements.ts';
import { type SolanaSettings, depthFor } from '../settings.ts';
import { isSignedByEd25519 } from '../sign-in/signatures.ts';
import {
  decodeWire,
  gasOf,
  newestSeconds,
  openSolanaNodes,
  ownerOf,
  readSolanaKey,
  sendWire,
  statusOf,
  tokensOf,
  transactionId,
} from './chain.ts';
import type { SolanaNodes } from './chain.ts';
import { BLOCKHASH_LIFE_BLOCKS, findSolanaPayment, receivedTransfers } from './evidence.ts';
import type { SolanaDepth } from './evidence.ts';
import { checkTransfer, readSolanaPayment, solanaOf, usesFeePayer } from './payload.ts';
import { solanaRefunds } from './refunds.ts';

/** After this reason the chain decides, because the structure of the transaction was valid before. */
const SIMULATION_FAILED = 'invalid_exact_svm_transaction_simulation_failed';
const UNCLEAR = [SIMULATION_FAILED];
/** The scheme of Solana has no such reason; the scheme of Base has. */
const INSUFFICIENT = 'invalid_exact_svm_insufficient_balance';
const LAMPORTS_PER_SOL = 1e9;
/** CAIP-30: the reference of a cluster is the beginning of its genesis hash. */
const CAIP2_REFERENCE_CHARS = 32;
/** Balance for the base fee and the capped priority fee of some settlements. */
const LEAST_LAMPORTS = 1_000_000n;
/** Transactions of the exposed facilitator that this process may send again. */
const MAX_OWN = 1_000;
const SYSTEM_PROGRAM = address('11111111111111111111111111111111');

/** Rejects if an external facilitator that must name the fee payer does not respond. */
export async function openSolanaRail(
  settings: SolanaSettings,
  options: RailOptions,
): Promise<SolanaRail> {
  return new SolanaRail(await openAll(settings, options));
}

async function openAll(settings: SolanaSettings, options: RailOptions) {
  const nodes = openSolanaNodes(settings.rpcUrl, options.clock);
  const { feePayerKey, refundKey, network } = settings;
  const feePayer = feePayerKey === undefined ? undefined : await readSolanaKey(feePayerKey);
  const offer = await solanaOffer(settings, options.external, feePayer);
  const agreement = new Agreement({ ...options, network, nodes: nodes.each, newestSeconds });
  const { store, clock } = options;
  /** Stores the id of a transaction that the fee payer pays, before it is sent; `false` if it was stored. */
  const sent = async (transaction: string): Promise<boolean> => {
    const payer = feePayer?.address ?? '';
    const sentMs = clock.nowMs();
    return await storeSent(store, { transaction, network, payer, number: 0n, sentMs });
  };
  const refunds = await solanaRefunds({
    treasury: refundKey === undefined ? undefined : await readSolanaKey(refundKey),
    rpc: nodes.rpc,
    sent,
    feePayer,
    offer,
    position: () => positionOf(agreement),
    find: async (payment, attempt) =>
      await agreement.evidence((node) => findSolanaPayment(node, payment, attempt, 'finalized')),
  });
  const signer = facilitatorSigner(nodes, network, feePayer, offer);
  return { settings, options, nodes, agreement, feePayer, offer, refunds, signer, sent };
}

type OpenedSolana = Awaited<ReturnType<typeof openAll>>;

export class SolanaRail implements Rail {
  readonly network: string;
  readonly offer: RailOffer;
  readonly refunds: RefundRail | undefined;
  readonly #opened: OpenedSolana;
  /** A slot is 0.4 seconds. */
  readonly hourBlocks = 9_000n;
  #decimals: number | undefined;

  constructor(opened: OpenedSolana) {
    this.#opened = opened;
    this.network = opened.settings.network;
    this.offer = opened.offer;
    this.refunds = opened.refunds;
    const isUsdc = this.offer.asset === solanaUsdc(opened.settings.network).asset;
    this.#decimals = isUsdc ? USDC_DECIMALS : undefined;
  }

  read(envelope: Envelope): SignedPayment {
    return readSolanaPayment(envelope, this.offer);
  }

  async checkOffer(payment: SignedPayment, accepted: Envelope['accepted']): Promise<void> {
    checkAccepted(accepted, this.offer, 'exact');
    await checkTransfer(payment, this.offer);
  }

  /** Verifies the payer's signature; the signature of the fee payer is ours. */
  async isSigned(payment: SignedPayment): Promise<boolean> {
    const { messageBytes, signatures } = decodeWire(solanaOf(payment).transaction);
    const signature = signatures[address(payment.wallet)];
    if (signature === undefined || signature === null) return false;
    return await isSignedByEd25519(payment.wallet, Uint8Array.from(messageBytes), signature);
  }

  /** The blockhash for a new payment. Rejects if no node responds. */
  async recentBlock() {
    const { rpc } = this.#opened.nodes;
    const { value } = await rpc.getLatestBlockhash({ commitment: 'confirmed' }).send();
    return value;
  }

  async verify(payment: SignedPayment): Promise<Verdict> {
    const reason = await decimalsProblem(this);
    if (reason !== undefined) return { kind: 'unclear', reason };
    const { signer, options } = this.#opened;
    const request = officialRequest(payment, 'verify', options.maxTimeoutSeconds);
    const verdict = await verdictOf(this.#scheme(signer).verify(...request), UNCLEAR);
    if (verdict.kind !== 'unclear' || verdict.reason !== SIMULATION_FAILED) return verdict;
    // Still unclear, because this payment itself may have moved the tokens.
    return (await this.#lacksTokens(payment)) ? { ...verdict, reason: INSUFFICIENT } : verdict;
  }

  async balanceOf(payment: SignedPayment): Promise<bigint> {
    return await tokensOf(this.#opened.nodes.rpc, address(solanaOf(payment).source));
  }

  /** Whether the paying account holds less than it signed; `false` if no node responds. */
  async #lacksTokens(payment: SignedPayment): Promise<boolean> {
    try {
      return (await this.balanceOf(payment)) < payment.amountUnits;
    } catch {
      // The verdict keeps the reason of the simulation.
      return false;
    }
  }

  async settle(payment: SignedPayment, journal: Journal): Promise<void> {
    const { external, maxTimeoutSeconds } = this.#opened.options;
    const request = officialRequest(payment, 'settle', maxTimeoutSeconds);
    if (external !== undefined) return await external.settle(...request);
    const signer = this.#journaledSigner(async (id, wire) => await journal(payment.key, id, wire));
    await this.#scheme(signer).settle(...request);
  }

  async position(): Promise<Position> {
    return await positionOf(this.#opened.agreement);
  }

  async findPayment(
    payment: SignedPayment,
    attempt: Attempt,
    depth: EvidenceDepth,
  ): Promise<Evidence> {
    const { agreement } = this.#opened;
    const known = await this.#withId(payment, attempt);
    const level = depth === 'final' ? 'finalized' : this.#creditDepth(payment);
    const evidence = await agreement.evidence((node) =>
      findSolanaPayment(node, solanaOf(payment), known, level),
    );
    // Two ledgers with one fee payer create the same id, so the slot decides which one was first.
    if (evidence.kind === 'paid' && evidence.height < attempt.startHeight) {
      return { kind: 'final', reason: USED_BEFORE, isConfirmed: evidence.isConfirmed };
    }
    if (evidence.kind !== 'open' || attempt.transaction !== undefined) return evidence;
    return { kind: 'open', attempt: evidence.attempt === 'waiting' ? 'waiting' : 'none' };
  }

  #creditDepth({ amountUnits }: SignedPayment): SolanaDepth {
    const { confirmations } = this.#opened.settings;
    return depthFor(confirmations, unitsToNano(amountUnits)) ?? 'confirmed';
  }

  async newestHeight(): Promise<bigint> {
    return await this.#opened.nodes.rpc.getSlot({ commitment: 'confirmed' }).send();
  }

  async received(search: ReceivedSearch): Promise<readonly Received[]> {
    return await receivedTransfers(this.#opened.nodes.rpc, search);
  }

  async rebroadcast(raw: string): Promise<'sent'> {
    await sendWire(this.#opened.nodes.rpc, raw);
    return 'sent';
  }

  async decimals(): Promise<number> {
    const { rpc } = this.#opened.nodes;
    this.#decimals ??= (await fetchMint(rpc, address(this.offer.asset))).data.decimals;
    return this.#decimals;
  }

  async gasReader(): Promise<GasReader> {
    const { nodes, options } = this.#opened;
    const { rpc } = nodes;
    return async ({ transaction }) => await gasOf(rpc, transaction, options.clock.nowMs());
  }

  async health(): Promise<RailHealth> {
    const { settings, nodes, agreement, feePayer } = this.#opened;
    const { warnBelowSol } = settings;
    const gasAddress = feePayer?.address;
    const gasBalance =
      gasAddress === undefined
        ? undefined
        : (await nodes.rpc.getBalance(gasAddress, { commitment: 'confirmed' }).send()).value;
    const canPay = gasBalance === undefined || gasBalance >= LEAST_LAMPORTS;
    return await healthOf(this, {
      nodes,
      agreement,
      networkOf: async (node) => {
        const genesisHash = await node.getGenesisHash().send();
        return `solana:${genesisHash.slice(0, CAIP2_REFERENCE_CHARS)}`;
      },
      gasAddress,
      gasBalance,
      warnBelow: BigInt(Math.round(warnBelowSol * LAMPORTS_PER_SOL)),
      lowProblem: `The fee payer ${gasAddress} holds less than ${warnBelowSol} SOL`,
      blocking: [
        await this.#receiverProblem(),
        canPay ? undefined : 'The fee payer cannot pay for a settlement',
      ],
      warnings: [],
    });
  }

  exposedScheme(): ExactSvmScheme {
    const { signer, agreement, sent } = this.#opened;
    const own = new Map<string, true>();
    const agreeing: FacilitatorSvmSigner = {
      ...signer,
      // Part of every verify and settle. The scheme checks only that the fee payer does not own the tokens.
      simulateTransaction: async (wire, network) => {
        if (usesFeePayer(decodeWire(wire))) {
          throw new Error('The fee payer must not be an account of an instruction');
        }
        await signer.simulateTransaction(wire, network);
      },
      sendTransaction: async (wire, network) => {
        const id = transactionId(decodeWire(wire));
        // The cluster runs it once, but each process would report a settlement.
        if (!(await sent(id)) && !own.has(id)) throw new Error('Another process has sent it');
        remember(own, id, true, MAX_OWN);
        return await signer.sendTransaction(wire, network);
      },
      confirmTransaction: async (id, network) => {
        await signer.confirmTransaction(id, network);
        // Other servers trust the result, so two nodes must agree on it.
        const isConfirmed = await agreement.value(
          'a settlement',
          async (node) => (await statusOf(node, id)).kind === 'confirmed',
        );
        if (!isConfirmed) throw new Error('The transaction is not confirmed');
      },
    };
    const cache = new SettlementCache();
    const open = (pendingSettlementStore: PendingSettlementStore): ExactSvmScheme =>
      new ExactSvmScheme(agreeing, cache, { ...this.#limits(), pendingSettlementStore });
    const pending = new PendingSettlements();
    const settle: ExactSvmScheme['settle'] = async (payment, required) =>
      await open(pending.storeOf(payment, required)).settle(payment, required);
    return Object.assign(open(NO_PENDING_STORE), { settle });
  }

  async #receiverProblem(): Promise<string | undefined> {
    const { rpc } = this.#opened.nodes;
    const owner = address(this.offer.payTo);
    const holder = await ownerOf(rpc, owner);
    // The System program owns wallets; a wallet without SOL does not exist on the chain.
    if (holder !== undefined && holder !== SYSTEM_PROGRAM) {
      return `The receiver ${owner} is an account of the program ${holder}, not a wallet: set payTo to the owner of the account, or the money is lost`;
    }
    const mint = address(this.offer.asset);
    const tokenProgram = TOKEN_PROGRAM_ADDRESS;
    const [account] = await findAssociatedTokenPda({ owner, mint, tokenProgram });
    if ((await ownerOf(rpc, account)) !== undefined) return undefined;
    return `The token account ${account} of the receiver does not exist; no payment can arrive until you create it`;
  }

  #limits() {
    const { maxPriorityFeeMicroLamports, maxComputeUnits } = this.#opened.settings;
    return { maxPriorityFeeMicroLamports, maxComputeUnits, maxRequiredSignatures: 2 };
  }

  #scheme(signer: FacilitatorSvmSigner): ExactSvmScheme {
    return new ExactSvmScheme(signer, new NoSettlementCache(), {
      ...this.#limits(),
      pendingSettlementStore: NO_PENDING_STORE,
    });
  }

  /** Our signature is deterministic, so the id is known before the transaction is stored. */
  async #withId(payment: SignedPayment, attempt: Attempt): Promise<Attempt> {
    const { signer, feePayer, options } = this.#opened;
    const isOurs =
      feePayer?.address === payment.offer.extra['feePayer'] && options.external === undefined;
    if (attempt.transaction !== undefined || !isOurs || feePayer === undefined) return attempt;
    const { transaction } = solanaOf(payment);
    const wire = await signer.signTransaction(transaction, feePayer.address, this.network);
    return { ...attempt, transaction: transactionId(decodeWire(wire)) };
  }

  /**
   * Calls `journal` before a transaction is sent. Does not throw afterwards: the scheme would log the error
   * with the URL of the node, and the chain decides.
   */
  #journaledSigner(journal: (id: string, wire: string) => Promise<void>): FacilitatorSvmSigner {
    const { signer, nodes, options, sent } = this.#opened;
    const { clock, log, settleWaitMs, pollMs } = options;
    return {
      ...signer,
      sendTransaction: async (wire) => {
        const id = transactionId(decodeWire(wire));
        await journal(id, wire);
        await sent(id);
        try {
          await sendWire(nodes.rpc, wire);
        } catch (error) {
          // The cluster may have the transaction although the response was lost.
          log.warn({ reason: chainReason(error) }, 'A broadcast got no response');
        }
        return id;
      },
      confirmTransaction: async (id) => {
        const deadlineMs = clock.monotonicMs() + settleWaitMs;
        while (clock.monotonicMs() < deadlineMs) {
          const status = await statusOf(nodes.rpc, id).catch(() => undefined); // repeated below
          if (status?.kind === 'confirmed' || status?.kind === 'failed') return;
          await clock.sleep(pollMs);
        }
      },
    };
  }
}

/** The end is that of the newest blockhash; others expire earlier. */
async function positionOf(agreement: Agreement<SolanaNodes['rpc']>): Promise<Position> {
  // Slots grow on every fork.
  const [slot, height] = await Promise.all([
    agreement.reached('a slot', (node) => node.getSlot({ commitment: 'processed' }).send()),
    agreement.reached('a height', (node) =>
      node.getBlockHeight({ commitment: 'confirmed' }).send(),
    ),
  ]);
  return { startHeight: slot, startBlock: undefined, expiresAt: height + BLOCKHASH_LIFE_BLOCKS };
}

async function solanaOffer(
  settings: SolanaSettings,
  external: ExternalFacilitator | undefined,
  feePayer: KeyPairSigner | undefined,
): Promise<RailOffer> {
  const { network } = settings;
  const usdc = solanaUsdc(network);
  const payer = external === undefined ? feePayer?.address : await external.feePayer(network);
  if (payer === undefined) {
    throw new Error(
      'payments.solana needs a feePayerKey, or an external facilitator that reports a fee payer',
    );
  }
  const { asset = usdc.asset, payTo } = settings;
  return { network, asset, payTo, extra: { ...usdc.extra, feePayer: payer } };
}

/** The official signer; without the key of the fee payer it verifies but does not sign. */
function facilitatorSigner(
  nodes: SolanaNodes,
  network: string,
  feePayer: KeyPairSigner | undefined,
  offer: RailOffer,
): FacilitatorSvmSigner {
  const payer = address(offer.extra['feePayer'] ?? '');
  // One client for each network, with the methods that the signer calls.
  const rpc = { [network]: nodes.rpc } as never;
  if (feePayer?.address === payer) return toFacilitatorSvmSigner(feePayer, rpc);
  return {
    ...toFacilitatorSvmSigner({ address: payer } as never, rpc), // never signs
    signTransaction: async () => {
      throw new Error('Only the external facilitator can sign');
    },
  };
}

/** The database prevents a second settlement; the cache of the scheme would report false duplicates. */
class NoSettlementCache extends SettlementCache {
  override isDuplicate(): boolean {
    return false;
  }
}
