/**
 * The rail of an EVM network: ERC-3009 payments (`exact`) and Permit2 payments (`upto`). The official schemes
 * verify them and send them through `EvmSender`; an external facilitator can send those of `exact`.
 */
import { x402UptoPermit2ProxyAddress as UPTO_PROXY } from '@x402/evm';
import {
  domainSeparator,
  hashTypedData,
  hexToBytes,
  parseEther,
  parseGwei,
  zeroAddress,
} from 'viem';
import type { Hex, TransactionReceipt } from 'viem';
import { checksumAddress } from '../../core/addresses.ts';
import { HOUR_MS, SECOND_MS } from '../../core/clock.ts';
import { FairShare } from '../../core/fair-share.ts';
import { Fault } from '../../core/faults.ts';
import { chainReason } from '../chain-log.ts';
import { type Envelope, checkAccepted } from '../envelope.ts';
import { EvmKey } from '../evm-key.ts';
import { checkPermit2, permit2TypedData, readPermit2 } from '../extensions/upto.ts';
import { unitsToNano, USDC_DECIMALS } from '../networks.ts';
import { Agreement } from '../nodes.ts';
import { type SignedPayment, paymentError } from '../payment.ts';
import {
  NO_PENDING_STORE,
  decimalsProblem,
  healthOf,
  officialRequest,
  verdictOf,
} from '../rail-checks.ts';
import { SettlementRefused, USED_BEFORE } from '../rail.ts';
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
  Rebroadcast,
  Received,
  ReceivedSearch,
  RefundRail,
  Verdict,
} from '../rail.ts';
import type { RailOffer } from '../requirements.ts';
import { type EvmSettings, depthFor } from '../settings.ts';
import { type ContractSignatureCheck, recoverAddress } from '../sign-in/signatures.ts';
import {
  newestBlock,
  openEvmNodes,
  receiptOf,
  TOKEN_ABI,
  tokenDomain,
  trackedClient,
  transactionCounts,
  transferTypedData,
} from './chain.ts';
import type { EvmClient } from './chain.ts';
import { findErc3009Payment, findPermit2Payment, receivedTransfers } from './evidence.ts';
import type { Search } from './evidence.ts';
import { checkTransfer, contractForm, erc3009Of, readErc3009 } from './payload.ts';
import { evmGasReader } from './gas.ts';
import { evmRefunds } from './refunds.ts';
import { ExposedEvmScheme, trackedScheme } from './scheme.ts';
import type { SchemeOptions, TrackedScheme } from './scheme.ts';
import { EvmSender, RefusedError } from './sender.ts';

/** Reasons of the schemes after which the chain decides whether the payment was made. */
const UNCLEAR = [
  'invalid_exact_evm_nonce_already_used',
  'invalid_exact_evm_transaction_simulation_failed',
  'invalid_exact_evm_eip3009_not_supported',
  'asset_not_deployed_contract',
  'permit2_simulation_failed',
];
const MAX_COLUMN = (1n << 63n) - 1n;
/** Concurrent calls of contract wallets, which anonymous requests can cause. */
const MAX_CONTRACT_CALLS = 32;

interface EvmRailOptions extends RailOptions {
  /**
   * The network whose contract wallets can pay. A contract address can have another owner on each network,
   * and the address is the identity of the account.
   */
  readonly contractNetwork: string;
}

export class EvmRail implements Rail {
  readonly network: string;
  readonly offer: RailOffer;
  readonly refunds: RefundRail | undefined;
  readonly hourBlocks: bigint;
  readonly #settings: EvmSettings;
  readonly #options: EvmRailOptions;
  readonly #client: EvmClient;
  readonly #nodes: ReturnType<typeof openEvmNodes>;
  readonly #agreement: Agreement<EvmClient>;
  readonly sender: EvmSender | undefined;
  readonly #contractCalls = new FairShare(MAX_CONTRACT_CALLS);
  #decimals: number | undefined;

  constructor(settings: EvmSettings, options: EvmRailOptions) {
    const { network, gasKey, asset, domain, isUsdc, minimumTopUpUsd } = settings;
    const nodes = openEvmNodes(settings.rpcUrl, options.clock);
    const { client, each } = nodes;
    this.network = network;
    this.hourBlocks = BigInt(Math.ceil(HOUR_MS / SECOND_MS / settings.blockSeconds));
    this.#settings = settings;
    this.#options = options;
    this.#client = client;
    this.#nodes = nodes;
    this.#agreement = new Agreement({
      ...options,
      network,
      nodes: each,
      newestSeconds: async (node) => Number((await node.getBlock()).timestamp),
    });
    const key = gasKey === undefined ? undefined : new EvmKey(hexToBytes(gasKey as Hex)); // checked by the configuration
    this.sender =
      key &&
      new EvmSender({
        ...options,
        client,
        counts: transactionCounts(client, this.#agreement, key.address),
        chainId: Number(network.slice('eip155:'.length)),
        key,
        maxGas: BigInt(settings.maxGas),
        maxFeePerGas: this.#maxFeePerGas(),
      });
    const facilitatorAddress = this.sender?.address;
    const isUpto = settings.upto && options.external === undefined;
    this.offer = {
      network,
      asset,
      payTo: checksumAddress(settings.payTo),
      extra: { ...domain },
      ...(minimumTopUpUsd === undefined ? {} : { minimumUsd: minimumTopUpUsd }),
      ...(isUpto && facilitatorAddress !== undefined
        ? { upto: { facilitatorAddress, takesApproval: isUsdc } }
        : {}),
    };
    this.#decimals = isUsdc ? USDC_DECIMALS : undefined;
    this.refunds = evmRefunds({
      refundKey: settings.refundKey as Hex | undefined, // checked by the configuration
      sender: this.sender,
      offer: this.offer,
      newestBlock: async () => await newestBlock(this.#agreement),
      find: async (payment, attempt) =>
        await this.#agreement.evidence((node) =>
          findErc3009Payment(node, asset as Hex, payment, {
            attempt,
            depth: 'finalized',
            hourBlocks: this.hourBlocks,
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

  /** The signature of a key is checked without the chain; a contract wallet is called. */
  async isSigned(payment: SignedPayment, clientAddress: string): Promise<boolean> {
    const signature = payment.inner['signature'] as Hex; // checked when it was read
    const hash = signedHash(payment);
    if (recoverAddress(hexToBytes(hash), hexToBytes(signature)) === payment.wallet) return true;
    const { contractNetwork } = this.#options;
    if (contractNetwork !== this.network) {
      throw paymentError(
        'INVALID_PAYMENT_PAYER',
        `The signature is not one of the key of the payer; contract wallets can pay on ${contractNetwork} only`,
      );
    }
    const address = payment.wallet as Hex; // an EVM identity
    return await this.isContractSignature({ address, hash, signature, clientAddress });
  }

  /** EIP-1271, or ERC-6492 before the contract is deployed. Throws 503 above the limit of calls. */
  readonly isContractSignature: ContractSignatureCheck = async ({ clientAddress, ...signed }) => {
    // The contract that checks signatures recovers every invalid one to the zero address.
    if (signed.address === zeroAddress) return false;
    if (!this.#contractCalls.take(clientAddress)) {
      throw new Fault('SERVICE_UNAVAILABLE', {
        message: 'Too many signatures of contract wallets are being checked; try again in a second',
        retryAfterSeconds: 1,
      });
    }
    try {
      return await this.#agreement.value('the signature of a contract', async (node) => {
        const { client, hasNodeFailed } = trackedClient(node);
        // viem reports a failed call as a bad signature.
        const isValid = await client.verifyHash(signed).catch(() => false);
        if (!isValid && hasNodeFailed()) throw new Error('The node did not respond');
        return isValid;
      });
    } finally {
      this.#contractCalls.giveBack(clientAddress);
    }
  };

  async verify(payment: SignedPayment): Promise<Verdict> {
    const { maxTimeoutSeconds } = this.#options;
    const reason = await decimalsProblem(this);
    if (reason !== undefined) return { kind: 'unclear', reason };
    const { scheme, hasNodeFailed } = this.#scheme(payment, async () => {
      throw new Error('A verification must not send a transaction');
    });
    const request = officialRequest(inContractForm(payment), 'verify', maxTimeoutSeconds);
    return await verdictOf(scheme.verify(...request), UNCLEAR, hasNodeFailed);
  }

  async settle(payment: SignedPayment, journal: Journal): Promise<void> {
    const { external, log, maxTimeoutSeconds } = this.#options;
    const request = officialRequest(inContractForm(payment), 'settle', maxTimeoutSeconds);
    if (external !== undefined) return await external.settle(...request);
    let refused: RefusedError | undefined;
    let wasTried = false;
    const { scheme, hasNodeFailed } = this.#scheme(payment, async (call) => {
      wasTried = true;
      try {
        return await this.#send(call, async (id, raw) => await journal(payment.key, id, raw));
      } catch (error) {
        // The scheme returns the same result for every failure.
        if (error instanceof RefusedError) refused = error;
        throw error;
      }
    });
    const result = await scheme.settle(...request);
    if (refused !== undefined) throw new SettlementRefused(refused.message);
    if (result.success) return;
    const reason = chainReason(result.errorReason ?? 'unknown');
    // The second verification inside of `settle` failed.
    if (!wasTried && !hasNodeFailed() && !UNCLEAR.includes(reason))
      throw new SettlementRefused(reason);
    log.info({ reason, network: payment.network }, 'A settlement was not confirmed at once');
  }

  async position(payment: SignedPayment): Promise<Position> {
    const { number, hash } = await newestBlock(this.#agreement);
    const { authorization } = payment;
    const validBefore =
      authorization.kind === 'permit2' ? authorization.deadline : erc3009Of(payment).validBefore;
    // Times have 256 bits, columns 63.
    const expiresAt = validBefore < MAX_COLUMN ? validBefore : MAX_COLUMN;
    return { startHeight: number, startBlock: hash, expiresAt };
  }

  async findPayment(
    payment: SignedPayment,
    attempt: Attempt,
    depth: EvidenceDepth,
  ): Promise<Evidence> {
    const { confirmations } = this.#settings;
    const creditDepth = depthFor(confirmations, unitsToNano(payment.amountUnits)) ?? 1;
    const blocks = depth === 'final' ? 'finalized' : creditDepth;
    const { hourBlocks } = this;
    const search = { attempt, depth: blocks, hourBlocks };
    return await this.#agreement.evidence((node) => findOn(node, payment, search));
  }

  async newestHeight(): Promise<bigint> {
    return await this.#client.getBlockNumber();
  }

  async received(search: ReceivedSearch): Promise<readonly Received[]> {
    return await receivedTransfers(this.#client, search);
  }

  async rebroadcast(raw: string): Promise<Rebroadcast> {
    return (await this.sender?.rebroadcast(raw as Hex)) ?? 'dead'; // written by the sender
  }

  async balanceOf({ offer, wallet }: SignedPayment): Promise<bigint> {
    const address = offer.asset as Hex; // of an offer of this rail
    const args = [wallet as Hex] as const; // an EVM identity
    const call = { address, abi: TOKEN_ABI, functionName: 'balanceOf', args } as const;
    return await this.#client.readContract(call);
  }

  async decimals(): Promise<number> {
    const address = this.offer.asset as Hex; // a valid EVM address
    const call = { address, abi: TOKEN_ABI, functionName: 'decimals' } as const;
    this.#decimals ??= await this.#client.readContract(call);
    return this.#decimals;
  }

  async gasReader(): Promise<GasReader> {
    return await evmGasReader(this.#client);
  }

  async health(): Promise<RailHealth> {
    const client = this.#client;
    const { maxGas, warnBelow, coin } = this.#settings;
    const gasAddress = this.sender?.address;
    const gasBalance =
      gasAddress === undefined ? undefined : await client.getBalance({ address: gasAddress });
    const finality = await client.getBlock({ blockTag: 'finalized' }).then(
      () => undefined,
      (error: unknown) =>
        `The node has no finalized block, so no credit becomes final and no credit can be refunded: ${chainReason(error)}`,
    );
    const hasProxy = this.offer.upto === undefined || (await hasCode(client, UPTO_PROXY));
    // Fees are usually far below the cap, so a tenth of a settlement at the cap is enough.
    const needed = (BigInt(maxGas) * this.#maxFeePerGas()) / 10n;
    const canPay =
      this.#options.external !== undefined || (gasBalance !== undefined && gasBalance >= needed);
    return await healthOf(this, {
      nodes: this.#nodes,
      agreement: this.#agreement,
      networkOf: async (node) => `eip155:${await node.getChainId()}`,
      gasAddress,
      gasBalance,
      warnBelow: parseEther(warnBelow.toFixed(18)),
      lowProblem: `The gas key ${gasAddress} holds less than ${warnBelow} ${coin}`,
      blocking: [
        canPay ? undefined : 'The gas key cannot pay for a settlement',
        await this.#domainProblem(),
      ],
      warnings: [
        finality,
        hasProxy ? undefined : `The chain has no proxy of the scheme upto at ${UPTO_PROXY}`,
      ],
    });
  }

  /** The token rejects every payment that is signed for another EIP-712 domain. */
  async #domainProblem(): Promise<string | undefined> {
    const { asset, extra } = this.offer;
    const address = asset as Hex; // a valid EVM address
    const call = { address, abi: TOKEN_ABI, functionName: 'DOMAIN_SEPARATOR' } as const;
    // Some tokens do not have the function; their payments are simulated before they are sent.
    const separator = await this.#client.readContract(call).catch(() => undefined);
    if (separator === undefined) return undefined;
    if (separator === domainSeparator({ domain: tokenDomain(this.offer) })) return undefined;
    return `The EIP-712 domain of the token ${asset} is not "${extra['name']}" version "${extra['version']}"`;
  }

  exposedScheme(): ExposedEvmScheme {
    return new ExposedEvmScheme(
      {
        ...this.#schemeOptions(async (call) => await this.#send(call, async () => undefined)),
        // Other servers trust the result, so two nodes must agree on it.
        receiptOf: async (hash) => await this.#agreedReceipt(hash),
      },
      async (hash) => (await this.sender?.attemptsOf(hash)) ?? [],
    );
  }

  async #agreedReceipt(hash: Hex): Promise<TransactionReceipt | undefined> {
    const receipts = new Map<string, TransactionReceipt>();
    const agreed = await this.#agreement.value('a receipt', async (node) => {
      const receipt = await receiptOf(node, hash);
      if (receipt === undefined) return '';
      const { blockHash, status, logs } = receipt;
      const entries = logs.map(({ address, topics, data }) => [address, topics, data]);
      const key = JSON.stringify([blockHash, status, entries]);
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
    const client = this.#client;
    return {
      client,
      receiptOf: async (hash) => await receiptOf(client, hash),
      wait: this.#options,
      gasAddress: this.sender?.address,
      send,
    };
  }

  async #send(...[call, journal]: Parameters<EvmSender['send']>): Promise<Hex> {
    if (this.sender === undefined) throw new Error('No gas key is configured');
    return await this.sender.send(call, journal);
  }

  #maxFeePerGas(): bigint {
    return parseGwei(this.#settings.maxFeeGwei.toFixed(9));
  }
}

function signedHash(payment: SignedPayment): Hex {
  const { authorization, offer, network } = payment;
  return authorization.kind === 'permit2'
    ? hashTypedData(permit2TypedData(network, authorization))
    : hashTypedData(transferTypedData(offer, erc3009Of(payment)));
}

function inContractForm(payment: SignedPayment): SignedPayment {
  const given = payment.inner['signature'] as Hex; // checked when it was read
  const signature = contractForm(given, signedHash(payment), payment.wallet);
  return signature === given ? payment : { ...payment, inner: { ...payment.inner, signature } };
}

async function findOn(
  client: EvmClient,
  payment: SignedPayment,
  search: Search,
): Promise<Evidence> {
  const { authorization, amountUnits, offer } = payment;
  const token = offer.asset as Hex; // of an offer of this rail
  const evidence =
    authorization.kind === 'permit2'
      ? await findPermit2Payment(client, { ...authorization, units: amountUnits }, search)
      : await findErc3009Payment(client, token, erc3009Of(payment), search);
  if (evidence.kind !== 'paid') return evidence;
  // Our own transaction was signed after the row was opened, when the payment was unused.
  const isOurs = evidence.transaction === search.attempt.transaction;
  if (!isOurs && (await wasBefore(client, evidence.height, search.attempt))) {
    return { kind: 'final', reason: USED_BEFORE, isConfirmed: evidence.isConfirmed };
  }
  return evidence;
}

/**
 * Whether a use at this height is older than the attempt. Returns `false` after a reorganisation, when
 * heights repeat: the verification before the row was opened found the payment unused.
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
