/**
 * The Base rail: ERC-3009 payments (`exact`) and Permit2 payments (`upto`), checked and sent by the
 * official schemes through the journaled sender, or, `exact` alone, sent by an external facilitator;
 * found by the chain's own evidence in all of them.
 */
import { hashTypedData, hexToBytes, parseEther, parseGwei } from 'viem';
import type { Hex, TransactionReceipt } from 'viem';
import { checksumAddress } from '../../core/addresses.ts';
import { Agreement } from '../agreement.ts';
import { chainReason } from '../chain-reason.ts';
import { type Envelope, checkAccepted } from '../envelope.ts';
import { EvmKey } from '../evm-key.ts';
import { decimalsProblem, unitsToNano, USDC_DECIMALS, usdcOf } from '../networks.ts';
import { chainProblems } from '../nodes.ts';
import { NO_PENDING_STORE, officialRequest, verdictOf } from '../official-scheme.ts';
import type { SignedPayment } from '../payment.ts';
import { SettlementRefused, USED_BEFORE } from '../rail.ts';
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
  RefundRail,
  Verdict,
} from '../rail.ts';
import type { RailOffer } from '../requirements.ts';
import { type BaseSettings, depthFor } from '../settings.ts';
import { type ContractSignatureCheck, recoverAddress } from '../sign-in/signatures.ts';
import { openEvmNodes, receiptOf, TOKEN_ABI, trackedClient, transferTypedData } from './chain.ts';
import type { EvmClient } from './chain.ts';
import { ContractQuestions } from './contract-questions.ts';
import { findErc3009Payment, findPermit2Payment, receivedTransfers } from './evidence.ts';
import type { BlockDepth } from './evidence.ts';
import { checkPermit2, permit2TypedData, readPermit2, UPTO_PROXY } from './permit2.ts';
import { checkTransfer, erc3009Of, readErc3009 } from './payload.ts';
import { evmRefunds } from './refunds.ts';
import { ExposedEvmScheme, trackedScheme } from './scheme.ts';
import type { SchemeOptions, TrackedScheme } from './scheme.ts';
import { EvmSender, RefusedError } from './sender.ts';
import { contractForm } from './signature-form.ts';

/** Answers of the check after which the chain decides whether the payment was made. */
const UNCLEAR = [
  'invalid_exact_evm_nonce_already_used',
  'invalid_exact_evm_transaction_simulation_failed',
  'invalid_exact_evm_eip3009_not_supported',
  'asset_not_deployed_contract',
  'permit2_simulation_failed',
];
const MAX_COLUMN = (1n << 63n) - 1n;

export class EvmRail implements Rail {
  readonly network: string;
  readonly offer: RailOffer;
  readonly refunds: RefundRail | undefined;
  readonly #settings: BaseSettings;
  readonly #options: RailOptions;
  /** Asks the nodes in their order; each of them alone is a witness. */
  readonly #client: EvmClient;
  readonly #each: readonly EvmClient[];
  readonly #agreement: Agreement<EvmClient>;
  readonly #sender: EvmSender | undefined;
  #decimals: number | undefined;
  readonly #contractQuestions = new ContractQuestions();

  constructor(settings: BaseSettings, options: RailOptions) {
    const { client, each } = openEvmNodes(settings.rpcUrl, options.clock);
    const usdc = usdcOf(settings.network);
    this.network = settings.network;
    this.#settings = settings;
    this.#options = options;
    this.#client = client;
    this.#each = each;
    this.#agreement = new Agreement({
      network: settings.network,
      nodes: each,
      clock: options.clock,
      contradictions: options.contradictions,
      newestSeconds: async (node) => Number((await node.getBlock()).timestamp),
    });
    this.#sender =
      settings.gasKey === undefined
        ? undefined
        : new EvmSender({
            ...options,
            client,
            chainId: Number(settings.network.slice('eip155:'.length)),
            key: new EvmKey(hexToBytes(settings.gasKey as Hex)), // checked by the configuration
            maxGas: BigInt(settings.maxGas),
            maxFeePerGas: this.#maxFeePerGas(),
          });
    const facilitatorAddress = this.#sender?.address;
    const isUpto = settings.upto && options.external === undefined;
    this.offer = {
      network: settings.network,
      asset: checksumAddress(settings.asset ?? usdc.asset),
      payTo: checksumAddress(settings.payTo),
      extra: usdc.extra,
    };
    const isUsdc = this.offer.asset === usdc.asset;
    if (isUpto && facilitatorAddress !== undefined) {
      this.offer = { ...this.offer, upto: { facilitatorAddress, takesApproval: isUsdc } };
    }
    this.#decimals = isUsdc ? USDC_DECIMALS : undefined;
    this.refunds = evmRefunds({
      refundKey: settings.refundKey as Hex | undefined, // checked by the configuration
      client,
      sender: this.#sender,
      offer: this.offer,
      find: async (payment, attempt) =>
        await this.#agreement.evidence((node) =>
          findErc3009Payment(node, this.offer.asset as Hex, payment, {
            attempt,
            depth: 'finalized',
          }),
        ),
    });
  }

  read(envelope: Envelope): SignedPayment {
    const { accepted, inner } = envelope;
    const isPermit2 = accepted['scheme'] !== 'exact' && 'permit2Authorization' in inner;
    return isPermit2 ? readPermit2(envelope, this.offer) : readErc3009(envelope, this.offer);
  }

  async checkOffer(payment: SignedPayment, accepted: Envelope['accepted']): Promise<void> {
    const { authorization } = payment;
    if (authorization.kind === 'permit2') {
      checkPermit2(authorization, this.offer, this.#options.clock.nowMs());
      checkAccepted(accepted, this.offer, 'upto');
    } else {
      checkAccepted(accepted, this.offer, 'exact');
      checkTransfer(erc3009Of(payment), this.offer);
    }
  }

  /** The key of the payer is found without the chain; its contract is asked. */
  async isSigned(payment: SignedPayment, asker: string): Promise<boolean> {
    const signature = payment.inner['signature'] as Hex; // checked when it was read
    const hash = signedHash(payment);
    if (recoverAddress(hexToBytes(hash), hexToBytes(signature)) === payment.wallet) return true;
    const address = payment.wallet as Hex; // an EVM identity
    return await this.isContractSignature({ address, hash, signature, asker });
  }

  /** EIP-1271, or ERC-6492 before the contract is deployed. Throws 503 when too many are asked. */
  readonly isContractSignature: ContractSignatureCheck = async ({ asker, ...question }) =>
    await this.#contractQuestions.ask(
      asker,
      async () =>
        await this.#agreement.value('the signature of a contract', async (node) => {
          const { client, isTroubled } = trackedClient(node);
          // The library alone would say that the signature is bad.
          const isGood = await client.verifyHash(question).catch(() => false);
          if (!isGood && isTroubled()) throw new Error('The node did not answer');
          return isGood;
        }),
    );

  async verify(payment: SignedPayment): Promise<Verdict> {
    const { maxTimeoutSeconds } = this.#options;
    const reason = await decimalsProblem(this);
    if (reason !== undefined) return { kind: 'unclear', reason };
    const { scheme, isTroubled } = this.#scheme(payment, async () => {
      throw new Error('A check sends nothing');
    });
    const request = officialRequest(inContractForm(payment), 'verify', maxTimeoutSeconds);
    return await verdictOf(scheme.verify(...request), UNCLEAR, isTroubled);
  }

  async settle(payment: SignedPayment, journal: Journal): Promise<void> {
    const { external, log, maxTimeoutSeconds } = this.#options;
    const request = officialRequest(inContractForm(payment), 'settle', maxTimeoutSeconds);
    if (external !== undefined) {
      await external.settle(...request);
      return;
    }
    let refused: RefusedError | undefined;
    let wasTried = false;
    const { scheme, isTroubled } = this.#scheme(payment, async (call) => {
      wasTried = true;
      try {
        return await this.#sent(call, async (id, raw) => await journal(payment.key, id, raw));
      } catch (error) {
        // The scheme makes one reason of every failure; this one is for the payer.
        if (error instanceof RefusedError) refused = error;
        throw error;
      }
    });
    const result = await scheme.settle(...request);
    if (refused !== undefined) throw new SettlementRefused(refused.message);
    if (result.success) return;
    const reason = chainReason(result.errorReason ?? 'unknown');
    // The scheme has checked it again, and what was good is not any more.
    if (!wasTried && !isTroubled() && !UNCLEAR.includes(reason))
      throw new SettlementRefused(reason);
    log.info({ reason, network: payment.network }, 'A settlement was not confirmed at once');
  }

  async position(payment: SignedPayment): Promise<Position> {
    const { number, hash } = await this.#client.getBlock();
    const { authorization } = payment;
    const validBefore =
      authorization.kind === 'permit2' ? authorization.deadline : erc3009Of(payment).validBefore;
    // Times of a signature have 256 bits, columns 63; both are later than any block.
    const expiresAt = validBefore < MAX_COLUMN ? validBefore : MAX_COLUMN;
    return { startHeight: number, startBlock: hash, expiresAt };
  }

  async findPayment(
    payment: SignedPayment,
    attempt: Attempt,
    depth: EvidenceDepth,
  ): Promise<Evidence> {
    const blocks = depth === 'final' ? 'finalized' : this.#creditDepth(payment);
    return await this.#agreement.evidence((node) => lookAt(node, payment, attempt, blocks));
  }

  async newestHeight(): Promise<bigint> {
    return await this.#client.getBlockNumber();
  }

  async received(search: ReceivedSearch): Promise<readonly Received[]> {
    return await receivedTransfers(this.#client, search);
  }

  async rebroadcast(raw: string): Promise<'sent' | 'dead'> {
    return (await this.#sender?.rebroadcast(raw as Hex)) ?? 'dead'; // journaled by the sender
  }

  /** Raises the fees of transactions that wait for long. Rejects when the chain cannot be asked. */
  async replaceStuck(): Promise<void> {
    await this.#sender?.replaceStuck();
  }

  async decimals(): Promise<number> {
    const address = this.offer.asset as Hex; // a valid EVM address
    const call = { address, abi: TOKEN_ABI, functionName: 'decimals' } as const;
    this.#decimals ??= await this.#client.readContract(call);
    return this.#decimals;
  }

  async health(): Promise<RailHealth> {
    const { network } = this;
    const { maxGas, warnBelowEth } = this.#settings;
    const { problems, isRight } = await chainProblems(
      this.#each,
      network,
      async (node) => `eip155:${await node.getChainId()}`,
    );
    const tokenProblem = await decimalsProblem(this);
    if (tokenProblem !== undefined) problems.push(tokenProblem);
    const gasAddress = this.#sender?.address;
    const gasBalance =
      gasAddress === undefined ? undefined : await this.#client.getBalance({ address: gasAddress });
    if (gasBalance !== undefined && gasBalance < parseEther(warnBelowEth.toFixed(18))) {
      problems.push(`The gas key ${gasAddress} holds less than ${warnBelowEth} ETH`);
    }
    try {
      await this.#client.getBlock({ blockTag: 'finalized' });
    } catch (error) {
      // Everything but this is well: payments go on, and the operator has to know.
      problems.push(
        `The node does not tell which block is final, so credits and failed payments are watched without end, and no credit is refunded: ${chainReason(error)}`,
      );
    }
    // One settlement at the fee cap is the least that makes an offer honest.
    const needed = BigInt(maxGas) * this.#maxFeePerGas();
    if (this.offer.upto !== undefined && !(await hasCode(this.#client, UPTO_PROXY))) {
      problems.push(`The chain has no proxy of the scheme upto at ${UPTO_PROXY}`);
    }
    const canPay =
      this.#options.external !== undefined ||
      (gasBalance !== undefined && gasBalance >= needed / 10n);
    if (!canPay) problems.push('The gas key cannot pay for a settlement');
    const isReady = canPay && isRight && tokenProblem === undefined;
    return { network, isReady, problems, gasAddress, gasBalance };
  }

  /** The official scheme on the shared gas key, for the exposed facilitator. */
  exposedScheme(): ExposedEvmScheme {
    const send: SchemeOptions['send'] = async (call) =>
      await this.#sent(call, async () => undefined);
    const options = this.#schemeOptions(send);
    // Others are told that they were paid, so two nodes must show it.
    return new ExposedEvmScheme({
      ...options,
      receiptOf: async (hash) => await this.#agreedReceipt(hash),
    });
  }

  async #agreedReceipt(hash: Hex): Promise<TransactionReceipt | undefined> {
    const receipts = new Map<string, TransactionReceipt>();
    const agreed = await this.#agreement.value('a receipt', async (node) => {
      const receipt = await receiptOf(node, hash);
      if (receipt === undefined) return '';
      const { blockHash, status, logs } = receipt;
      const key = JSON.stringify([
        blockHash,
        status,
        logs.map(({ address, topics, data }) => [address, topics, data]),
      ]);
      receipts.set(key, receipt);
      return key;
    });
    return receipts.get(agreed);
  }

  #scheme({ authorization }: SignedPayment, send: SchemeOptions['send']): TrackedScheme {
    const name = authorization.kind === 'permit2' ? 'upto' : 'exact';
    return trackedScheme({ ...this.#schemeOptions(send), pending: NO_PENDING_STORE, name });
  }

  #schemeOptions(send: SchemeOptions['send']): Omit<SchemeOptions, 'pending' | 'name'> {
    const gasAddress = this.#sender?.address;
    const client = this.#client;
    return {
      client,
      receiptOf: async (hash) => await receiptOf(client, hash),
      wait: this.#options,
      gasAddress,
      send,
    };
  }

  async #sent(...[call, journal]: Parameters<EvmSender['send']>): Promise<Hex> {
    if (this.#sender === undefined) throw new Error('No gas key is configured');
    return await this.#sender.send(call, journal);
  }

  #creditDepth({ amountUnits }: SignedPayment): BlockDepth {
    return depthFor(this.#settings.confirmations, unitsToNano(amountUnits)) ?? 1;
  }

  #maxFeePerGas(): bigint {
    return parseGwei(this.#settings.maxFeeGwei.toFixed(9));
  }
}

/** The EIP-712 hash that the payer of a payment signs. */
function signedHash(payment: SignedPayment): Hex {
  const { authorization, offer, network } = payment;
  return authorization.kind === 'permit2'
    ? hashTypedData(permit2TypedData(network, authorization))
    : hashTypedData(transferTypedData(offer, erc3009Of(payment)));
}

/** The payment with its signature as the contracts of the chain require it. */
function inContractForm(payment: SignedPayment): SignedPayment {
  const given = payment.inner['signature'] as Hex; // checked when it was read
  const signature = contractForm(given, signedHash(payment), payment.wallet);
  return signature === given ? payment : { ...payment, inner: { ...payment.inner, signature } };
}

/** What one node shows of a payment that was not there before us. */
async function lookAt(
  client: EvmClient,
  payment: SignedPayment,
  attempt: Attempt,
  depth: BlockDepth,
): Promise<Evidence> {
  const { authorization, amountUnits, offer } = payment;
  const token = offer.asset as Hex; // of an offer of this rail
  const search = { attempt, depth };
  const evidence =
    authorization.kind === 'permit2'
      ? await findPermit2Payment(client, { ...authorization, units: amountUnits }, search)
      : await findErc3009Payment(client, token, erc3009Of(payment), search);
  if (evidence.kind !== 'paid') return evidence;
  // Our own transaction was signed after the row was opened, so it proves that we came first.
  const isOurs = evidence.transaction === attempt.transaction;
  if (!isOurs && (await wasBefore(client, evidence.height, attempt))) {
    return { kind: 'final', reason: USED_BEFORE, isConfirmed: evidence.isConfirmed };
  }
  return evidence;
}

/**
 * Whether a use at this height is older than the attempt. Heights come again when the chain is
 * reorganised: then the check before the row was opened, which found it unused, stands alone.
 */
async function wasBefore(client: EvmClient, height: bigint, attempt: Attempt): Promise<boolean> {
  if (height > attempt.startHeight) return false;
  if (attempt.startBlock === undefined) return true;
  const block = await client.getBlock({ blockNumber: attempt.startHeight });
  return block.hash === attempt.startBlock;
}

async function hasCode(client: EvmClient, address: Hex): Promise<boolean> {
  return ((await client.getCode({ address })) ?? '0x') !== '0x';
}
