/**
 * The Solana rail: `exact` payments in SPL tokens, checked and co-signed by the official scheme
 * with a journaled signer, or sent by an external facilitator; found by their status in both.
 */
import { type FacilitatorSvmSigner, SettlementCache, toFacilitatorSvmSigner } from '@x402/svm';
import { ExactSvmScheme } from '@x402/svm/exact/facilitator';
import { type KeyPairSigner, address } from '@solana/kit';
import { fetchMint, findAssociatedTokenPda, TOKEN_PROGRAM_ADDRESS } from '@solana-program/token';
import { Agreement } from '../agreement.ts';
import { chainReason } from '../chain-reason.ts';
import { type Envelope, checkAccepted } from '../envelope.ts';
import type { ExternalFacilitator } from '../external-facilitator.ts';
import { decimalsProblem, unitsToNano, USDC_DECIMALS, usdcOf } from '../networks.ts';
import { chainProblems } from '../nodes.ts';
import { NO_PENDING_STORE, officialRequest, verdictOf } from '../official-scheme.ts';
import type { SignedPayment } from '../payment.ts';
import { USED_BEFORE } from '../rail.ts';
import type {
  Attempt,
  Evidence,
  EvidenceDepth,
  Journal,
  Position,
  Rail,
  RailHealth,
  RailOptions,
  Received,
  ReceivedSearch,
  RecentBlock,
  RefundRail,
  Verdict,
} from '../rail.ts';
import type { RailOffer } from '../requirements.ts';
import { type SolanaSettings, depthFor } from '../settings.ts';
import { isSignedByEd25519 } from '../sign-in/signatures.ts';
import {
  decodeWire,
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
import { checkTransfer, readSolanaPayment, solanaOf } from './payload.ts';
import { solanaRefunds } from './refunds.ts';

/** After this answer the status of the transaction decides: its structure was found good before. */
const SIMULATION_FAILED = 'invalid_exact_svm_transaction_simulation_failed';
const UNCLEAR = [SIMULATION_FAILED];
/** As the scheme of Base says it; that of Solana has no word for it. */
const INSUFFICIENT = 'invalid_exact_svm_insufficient_balance';
const LAMPORTS_PER_SOL = 1e9;
/** CAIP-30: a cluster is named by the beginning of its genesis hash. */
const CAIP2_REFERENCE_CHARS = 32;
/** Base fee of two signatures; priority fees come on top and are capped. */
const LEAST_LAMPORTS = 1_000_000n;
const SYSTEM_PROGRAM = address('11111111111111111111111111111111');

/** Rejects when an external facilitator that must name the fee payer does not answer. */
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
  const agreement = new Agreement({
    network,
    nodes: nodes.each,
    clock: options.clock,
    contradictions: options.contradictions,
    newestSeconds,
  });
  const refunds = await solanaRefunds({
    treasury: refundKey === undefined ? undefined : await readSolanaKey(refundKey),
    rpc: nodes.rpc,
    feePayer,
    offer,
    find: async (payment, attempt) =>
      await agreement.evidence((node) => findSolanaPayment(node, payment, attempt, 'finalized')),
  });
  const signer = facilitatorSigner(nodes, network, feePayer, offer);
  return { settings, options, nodes, agreement, feePayer, offer, refunds, signer };
}

type OpenedSolana = Awaited<ReturnType<typeof openAll>>;

export class SolanaRail implements Rail {
  readonly network: string;
  readonly offer: RailOffer;
  readonly refunds: RefundRail | undefined;
  readonly #opened: OpenedSolana;
  #decimals: number | undefined;

  constructor(opened: OpenedSolana) {
    this.#opened = opened;
    this.network = opened.settings.network;
    this.offer = opened.offer;
    this.refunds = opened.refunds;
    const isUsdc = this.offer.asset === usdcOf(opened.settings.network).asset;
    this.#decimals = isUsdc ? USDC_DECIMALS : undefined;
  }

  read(envelope: Envelope): SignedPayment {
    return readSolanaPayment(envelope, this.offer);
  }

  async checkOffer(payment: SignedPayment, accepted: Envelope['accepted']): Promise<void> {
    checkAccepted(accepted, this.offer, 'exact');
    await checkTransfer(payment, this.offer);
  }

  /** The payer's own signature over the message; the slot of the fee payer is ours to fill. */
  async isSigned(payment: SignedPayment): Promise<boolean> {
    const { messageBytes, signatures } = decodeWire(solanaOf(payment).transaction);
    const signature = signatures[address(payment.wallet)];
    if (signature === undefined || signature === null) return false;
    return await isSignedByEd25519(payment.wallet, Uint8Array.from(messageBytes), signature);
  }

  async recentBlock(): Promise<RecentBlock> {
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
    // Still unclear: what the wallet lacks may be gone by this very payment.
    return (await this.#lacksTokens(payment)) ? { ...verdict, reason: INSUFFICIENT } : verdict;
  }

  /** Whether the account that pays holds less than it signed; `false` when no node tells. */
  async #lacksTokens(payment: SignedPayment): Promise<boolean> {
    const source = address(solanaOf(payment).source);
    try {
      return (await tokensOf(this.#opened.nodes.rpc, source)) < payment.amountUnits;
    } catch {
      // The reason of the simulation stands.
      return false;
    }
  }

  async settle(payment: SignedPayment, journal: Journal): Promise<void> {
    const { external, maxTimeoutSeconds } = this.#opened.options;
    const request = officialRequest(payment, 'settle', maxTimeoutSeconds);
    if (external !== undefined) {
      await external.settle(...request);
      return;
    }
    const signer = this.#journaledSigner(async (id, wire) => await journal(payment.key, id, wire));
    await this.#scheme(signer).settle(...request);
  }

  async position(): Promise<Position> {
    const { rpc } = this.#opened.nodes;
    // Slots only ever grow, over every fork.
    const [slot, height] = await Promise.all([
      rpc.getSlot({ commitment: 'processed' }).send(),
      rpc.getBlockHeight({ commitment: 'confirmed' }).send(),
    ]);
    return { startHeight: slot, startBlock: undefined, expiresAt: height + BLOCKHASH_LIFE_BLOCKS };
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
    // Two ledgers with one fee payer make the same id, so the slot alone tells who came first.
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

  async health(): Promise<RailHealth> {
    const { settings, nodes, feePayer } = this.#opened;
    const { rpc, each } = nodes;
    const { network } = this;
    const { problems, isRight } = await chainProblems(each, network, async (node) => {
      const genesisHash = await node.getGenesisHash().send();
      return `solana:${genesisHash.slice(0, CAIP2_REFERENCE_CHARS)}`;
    });
    const tokenProblem = await decimalsProblem(this);
    if (tokenProblem !== undefined) problems.push(tokenProblem);
    const receiverProblem = await this.#receiverProblem();
    if (receiverProblem !== undefined) problems.push(receiverProblem);
    const gasAddress = feePayer?.address;
    const gasBalance =
      gasAddress === undefined
        ? undefined
        : (await rpc.getBalance(gasAddress, { commitment: 'confirmed' }).send()).value;
    const warnBelow = BigInt(Math.round(settings.warnBelowSol * LAMPORTS_PER_SOL));
    if (gasBalance !== undefined && gasBalance < warnBelow) {
      problems.push(`The fee payer ${gasAddress} holds less than ${settings.warnBelowSol} SOL`);
    }
    const canPay = gasBalance === undefined || gasBalance >= LEAST_LAMPORTS;
    if (!canPay) problems.push('The fee payer cannot pay for a settlement');
    const isReady =
      isRight && canPay && tokenProblem === undefined && receiverProblem === undefined;
    return { network, isReady, problems, gasAddress, gasBalance };
  }

  /** The official scheme on the shared fee payer, for the exposed facilitator. */
  exposedScheme(): ExactSvmScheme {
    const { signer, agreement } = this.#opened;
    const agreeing: FacilitatorSvmSigner = {
      ...signer,
      confirmTransaction: async (id, network) => {
        await signer.confirmTransaction(id, network);
        // Others are told that they were paid, so two nodes must show it.
        const isConfirmed = await agreement.value(
          'a settlement',
          async (node) => (await statusOf(node, id)).kind === 'confirmed',
        );
        if (!isConfirmed) throw new Error('The transaction is not confirmed');
      },
    };
    return new ExactSvmScheme(agreeing, undefined, this.#limits());
  }

  async #receiverProblem(): Promise<string | undefined> {
    const { rpc } = this.#opened.nodes;
    const owner = address(this.offer.payTo);
    const holder = await ownerOf(rpc, owner);
    // A wallet belongs to the System program, or is not there before it first holds SOL.
    if (holder !== undefined && holder !== SYSTEM_PROGRAM) {
      return `The receiver ${owner} is an account of the program ${holder}, not a wallet: name the owner, or the money is lost`;
    }
    const mint = address(this.offer.asset);
    const tokenProgram = TOKEN_PROGRAM_ADDRESS;
    const [account] = await findAssociatedTokenPda({ owner, mint, tokenProgram });
    if ((await ownerOf(rpc, account)) !== undefined) return undefined;
    return `The token account ${account} of the receiver does not exist: create it, or no payment can arrive`;
  }

  /** What a payer may make us spend on one payment. */
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

  /** Our signature is deterministic, so the id of a payment is known without a journal. */
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
   * The same signer, with the id and the bytes journaled before they are sent. After that it reports
   * no failure: the scheme would print it with the node's address, and the chain decides anyway.
   */
  #journaledSigner(journal: (id: string, wire: string) => Promise<void>): FacilitatorSvmSigner {
    const { signer, nodes, options } = this.#opened;
    const { clock, log, settleWaitMs, pollMs } = options;
    return {
      ...signer,
      sendTransaction: async (wire) => {
        const id = transactionId(decodeWire(wire));
        await journal(id, wire);
        try {
          await sendWire(nodes.rpc, wire);
        } catch (error) {
          // The reply may be lost while the cluster has the transaction.
          log.warn({ reason: chainReason(error) }, 'A broadcast gave no answer');
        }
        return id;
      },
      confirmTransaction: async (id) => {
        const deadlineMs = clock.monotonicMs() + settleWaitMs;
        while (clock.monotonicMs() < deadlineMs) {
          const status = await statusOf(nodes.rpc, id).catch(() => undefined); // asked again below
          if (status?.kind === 'confirmed' || status?.kind === 'failed') return;
          await clock.sleep(pollMs);
        }
      },
    };
  }
}

async function solanaOffer(
  settings: SolanaSettings,
  external: ExternalFacilitator | undefined,
  feePayer: KeyPairSigner | undefined,
): Promise<RailOffer> {
  const { network } = settings;
  const usdc = usdcOf(network);
  const payer = external === undefined ? feePayer?.address : await external.feePayer(network);
  if (payer === undefined) {
    throw new Error(
      'payments.solana needs a feePayerKey, or an external facilitator that names one',
    );
  }
  const { asset = usdc.asset, payTo } = settings;
  return { network, asset, payTo, extra: { ...usdc.extra, feePayer: payer } };
}

/** The official signer on our RPC; without the key of the fee payer it can check but not sign. */
function facilitatorSigner(
  nodes: SolanaNodes,
  network: string,
  feePayer: KeyPairSigner | undefined,
  offer: RailOffer,
): FacilitatorSvmSigner {
  const payer = address(offer.extra['feePayer'] ?? '');
  // The official signer takes a client for each network; ours has the same methods.
  const rpc = { [network]: nodes.rpc } as never;
  if (feePayer?.address === payer) return toFacilitatorSvmSigner(feePayer, rpc);
  return {
    ...toFacilitatorSvmSigner({ address: payer } as never, rpc), // never signs
    signTransaction: async () => {
      throw new Error('The external facilitator signs');
    },
  };
}

/** The database is what keeps a payment from being settled twice; the memory of the scheme only misleads. */
class NoSettlementCache extends SettlementCache {
  override isDuplicate(): boolean {
    return false;
  }
}
