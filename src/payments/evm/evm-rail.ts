/**
 * The Base rail: ERC-3009 payments, checked and sent by the official `exact` scheme through the
 * journaled sender, or sent by an external facilitator; found by the chain's own evidence in both.
 */
import type { FacilitatorClient } from '@x402/core/server';
import type { PaymentPayload, PaymentRequirements } from '@x402/core/types';
import { ExactEvmScheme } from '@x402/evm/exact/facilitator';
import type { Hex } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import type { Clock } from '../../core/clock.ts';
import type { Log } from '../../core/log.ts';
import { chainReason } from '../chain-reason.ts';
import type { Store } from '../../db/db.ts';
import { checksumAddress } from '../../core/addresses.ts';
import type { AmountLimits, Envelope } from '../envelope.ts';
import { networkFacts } from '../networks.ts';
import { chainProblems, servedBy } from '../nodes.ts';
import { officialRequest } from '../official-request.ts';
import type { SignedPayment } from '../payment.ts';
import { SettlementRefused } from '../rail.ts';
import type { Rail, RailHealth, Verdict } from '../rail.ts';
import type { RailOffer } from '../requirements.ts';
import type { ContractSignatureCheck } from '../sign-in/sign-in.ts';
import type { BaseSettings } from '../settings.ts';
import { openEvmNodes } from './chain.ts';
import type { EvmClient, EvmNodes } from './chain.ts';
import { ExposedEvmScheme } from './exposed-scheme.ts';
import { evmFinder, heightOf } from './find-payment.ts';
import { trackedSigner } from './facilitator-signer.ts';
import type { TrackedSigner } from './facilitator-signer.ts';
import { readErc3009 } from './read.ts';
import { evmReceived } from './received.ts';
import { evmRefunds } from './refunds.ts';
import { EvmSender, RefusedError } from './sender.ts';
import { contractSignatures, isSignedByPayer } from './signatures.ts';

export interface RailOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Log;
  readonly limits: AmountLimits;
  readonly maxTimeoutSeconds: number;
  readonly settleWaitMs: number;
  readonly pollMs: number;
  /** Settles in place of the embedded facilitator. */
  readonly external: FacilitatorClient | undefined;
}

export interface EvmRail extends Rail {
  readonly isContractSignature: ContractSignatureCheck;
  /** Raises the fees of transactions that wait for long. Rejects when the chain cannot be asked. */
  replaceStuck(): Promise<void>;
  /** The official scheme on the shared gas key, for the exposed facilitator. */
  openScheme(): ExposedEvmScheme;
}

/** Answers of the check after which the chain decides whether the payment was made. */
const UNCLEAR = new Set([
  'invalid_exact_evm_nonce_already_used',
  'invalid_exact_evm_transaction_simulation_failed',
  'invalid_exact_evm_eip3009_not_supported',
  'asset_not_deployed_contract',
]);
const WEI_PER_GWEI = 1_000_000_000;
const WEI_PER_ETH = 1e18;

export function openEvmRail(settings: BaseSettings, options: RailOptions): EvmRail {
  const { client, each } = openEvmNodes(settings.rpcUrl, options.clock);
  const chainId = Number(settings.network.slice('eip155:'.length));
  const offer = evmOffer(settings);
  const token = offer.asset as Hex; // a valid EVM address
  const sender = openSender(settings, options, client, chainId);
  const isContractSignature = contractSignatures(client);
  const signerFor = (send: Parameters<typeof trackedSigner>[0]['send']): TrackedSigner =>
    trackedSigner({
      client,
      clock: options.clock,
      addresses: sender === undefined ? [] : [sender.address],
      send,
      waitMs: options.settleWaitMs,
      pollMs: options.pollMs,
    });
  const scheme = (tracked: TrackedSigner): ExactEvmScheme =>
    new ExactEvmScheme(tracked.signer, { pendingSettlementStore: NO_PENDING_STORE });
  const ask = (payment: SignedPayment): [PaymentPayload, PaymentRequirements] =>
    officialRequest(payment, options.maxTimeoutSeconds);

  const rules = settings.confirmations;
  const { findOwn: find, ...looks } = evmFinder({ client, each }, { token, rules }, options.clock);

  const verify = async (payment: SignedPayment): Promise<Verdict> => {
    const tracked = signerFor(refuseToSend);
    return await verdictOf(scheme(tracked).verify(...ask(payment)), tracked);
  };

  async function settle(...[payment, journal]: Parameters<Rail['settle']>): Promise<void> {
    if (options.external !== undefined) {
      await options.external.settle(...ask(payment));
      return;
    }
    let refused: RefusedError | undefined;
    const tracked = signerFor(async (call) => {
      try {
        return await sendWith(sender, call, async (id, raw) => await journal(payment.key, id, raw));
      } catch (error) {
        // The scheme makes one reason of every failure; this one is for the payer.
        if (error instanceof RefusedError) refused = error;
        throw error;
      }
    });
    const result = await scheme(tracked).settle(...ask(payment));
    if (refused !== undefined) throw new SettlementRefused(refused.message);
    if (!result.success) {
      options.log.info(
        { reason: result.errorReason, network: payment.network },
        'a settlement was not confirmed at once',
      );
    }
  }

  // Async, so that a refusal is a rejection for every rail.
  const readWith = async (envelope: Envelope, limits?: AmountLimits): Promise<SignedPayment> =>
    await Promise.resolve().then(() => readErc3009(envelope, offer, limits));

  return {
    network: settings.network,
    offer,
    read: async (envelope) => await readWith(envelope, options.limits),
    readShape: async (envelope) => await readWith(envelope),
    isSigned: async (payment) => await isSignedByPayer(payment, chainId, isContractSignature),
    verify,
    settle,
    ...looks,
    received: async (search) => await evmReceived(client, search),
    rebroadcast: async (raw) =>
      sender === undefined ? 'dead' : await sender.rebroadcast(raw as Hex), // journaled by the sender
    health: async () =>
      await evmHealth(settings, { client, each }, sender?.address, options.external !== undefined),
    refunds: evmRefunds({ settings, client, sender, token, chainId, offer, find }),
    isContractSignature,
    replaceStuck: async () => await sender?.replaceStuck(),
    openScheme: () =>
      new ExposedEvmScheme(() =>
        signerFor(
          async (call) => await sendWith(sender, call, async () => await Promise.resolve()),
        ),
      ),
  };
}

async function verdictOf(
  asked: ReturnType<ExactEvmScheme['verify']>,
  tracked: TrackedSigner,
): Promise<Verdict> {
  try {
    const result = await asked;
    if (result.isValid) return { kind: 'valid' };
    const reason = chainReason(result.invalidReason ?? 'unknown');
    if (tracked.isTroubled()) return { kind: 'unclear', reason: 'chain_unavailable' };
    return { kind: UNCLEAR.has(reason) ? 'unclear' : 'rejected', reason };
  } catch (error) {
    // Shapes were checked before, so what is left is a chain that does not answer.
    return { kind: 'unclear', reason: chainReason(error) };
  }
}

async function sendWith(
  sender: EvmSender | undefined,
  ...[call, journal]: Parameters<EvmSender['send']>
): Promise<Hex> {
  if (sender === undefined) throw new Error('No gas key is configured');
  return await sender.send(call, journal);
}

function evmOffer(settings: BaseSettings): RailOffer {
  const facts = networkFacts(settings.network);
  return {
    network: settings.network,
    asset: checksumAddress(settings.asset ?? facts?.usdc ?? ''),
    payTo: checksumAddress(settings.payTo),
    extra: { name: facts?.domainName ?? 'USD Coin', version: facts?.domainVersion ?? '2' },
  };
}

function openSender(
  settings: BaseSettings,
  options: RailOptions,
  client: EvmClient,
  chainId: number,
): EvmSender | undefined {
  if (settings.gasKey === undefined) return undefined;
  return new EvmSender({
    client,
    chainId,
    account: privateKeyToAccount(settings.gasKey as Hex), // checked by the configuration
    store: options.store,
    clock: options.clock,
    log: options.log,
    maxGas: BigInt(settings.maxGas),
    maxFeePerGas: BigInt(Math.round(settings.maxFeeGwei * WEI_PER_GWEI)),
  });
}

/** The journal is the store of pending settlements; the scheme's own would only grow. */
const NO_PENDING_STORE = {
  get: async (): Promise<undefined> => await Promise.resolve(undefined),
  set: async (): Promise<void> => await Promise.resolve(),
  delete: async (): Promise<void> => await Promise.resolve(),
};

async function refuseToSend(): Promise<never> {
  return await Promise.reject(new Error('A check sends nothing'));
}

async function evmHealth(
  settings: BaseSettings,
  { client, each }: EvmNodes,
  gasAddress: Hex | undefined,
  isExternal: boolean,
): Promise<RailHealth> {
  const served = await servedBy(each, async (node) => `eip155:${await node.getChainId()}`);
  const { problems, isRight } = chainProblems(served, settings.network);
  const gasBalance =
    gasAddress === undefined ? undefined : await client.getBalance({ address: gasAddress });
  if (
    gasBalance !== undefined &&
    gasBalance < BigInt(Math.round(settings.warnBelowEth * WEI_PER_ETH))
  ) {
    problems.push(`The gas key ${gasAddress} holds less than ${settings.warnBelowEth} ETH`);
  }
  try {
    await heightOf(client, 'finalized');
  } catch (error) {
    // Everything but this is well: payments go on, and the operator has to know.
    problems.push(
      `The node does not tell which block is final, so credits are watched without end: ${chainReason(error)}`,
    );
  }
  // One settlement at the fee cap is the least that makes an offer honest.
  const needed = BigInt(settings.maxGas) * BigInt(Math.round(settings.maxFeeGwei * WEI_PER_GWEI));
  const canPay = isExternal || (gasBalance !== undefined && gasBalance >= needed / 10n);
  if (!canPay) problems.push('The gas key cannot pay for a settlement');
  return {
    network: settings.network,
    isReady: canPay && isRight,
    problems,
    gasAddress,
    gasBalance,
  };
}
