/**
 * The official schemes on our chain client and gas key: `EvmSender` sends the transaction, and the wait for
 * a receipt is bounded. Each verify or settle uses a new scheme object, which records failures of the node.
 */
import type { PendingSettlementStore } from '@x402/core/facilitator';
import type {
  PaymentPayload,
  PaymentRequirements,
  SchemeNetworkFacilitator,
} from '@x402/core/types';
import { ExactEvmScheme } from '@x402/evm/exact/facilitator';
import { UptoEvmScheme } from '@x402/evm/upto/facilitator';
import {
  type Abi,
  type Hex,
  type TransactionReceipt,
  encodeFunctionData,
  hashTypedData,
} from 'viem';
import { Fault } from '../../core/faults.ts';
import type { RailOptions } from '../rail.ts';
import { PendingSettlements } from '../extensions/pending-settlements.ts';
import type { Erc3009 } from '../payment.ts';
import { type EvmClient, trackedClient, transferTypedData } from './chain.ts';
import { paysExactly } from './evidence.ts';
import { contractForm, erc3009Of, readErc3009 } from './payload.ts';
import type { Call } from './sender.ts';

export interface SchemeOptions {
  readonly client: EvmClient;
  readonly receiptOf: (hash: Hex) => Promise<TransactionReceipt | undefined>;
  readonly wait: Pick<RailOptions, 'clock' | 'settleWaitMs' | 'pollMs'>;
  readonly gasAddress: Hex | undefined;
  readonly send: (call: Call) => Promise<Hex>;
  readonly pending: PendingSettlementStore;
  readonly name: 'exact' | 'upto';
}

export type TrackedScheme = ReturnType<typeof trackedScheme>;

/** A scheme reports a failed call of the node as a bad signature; `hasNodeFailed` distinguishes the two. */
export function trackedScheme(options: SchemeOptions) {
  const { client, hasNodeFailed } = trackedClient(options.client);
  const Scheme = options.name === 'upto' ? UptoEvmScheme : ExactEvmScheme;
  const scheme = new Scheme(
    {
      getAddresses: () => (options.gasAddress === undefined ? [] : [options.gasAddress]),
      // Never rejects: for a bad payment the scheme does not await this call, and an unhandled rejection
      // ends the process. `hasNodeFailed` records the failure.
      getCode: async ({ address }) => await client.getCode({ address }).catch(() => undefined),
      readContract: async (call) => {
        const abi = call.abi as Abi; // the scheme passes viem ABIs
        // The proxy of `upto` accepts calls of its facilitator only, also when simulated.
        const from = options.name === 'upto' ? { account: options.gasAddress } : {};
        return await client.readContract({ ...call, ...from, abi });
      },
      verifyTypedData: async () => {
        throw new Error('verifyTypedData is not used: signatures are verified by the digest');
      },
      writeContract: async (call) => {
        const { address: to, functionName, args } = call;
        const abi = call.abi as Abi; // the scheme passes viem ABIs
        return await options.send({ to, data: encodeFunctionData({ abi, functionName, args }) });
      },
      // Our gas would pay for the deployment of a counterfactual wallet.
      sendTransaction: async () => {
        throw new Error('Deployments are not allowed');
      },
      waitForTransactionReceipt: async ({ hash }) => await waitForReceipt(options, hash),
    },
    { pendingSettlementStore: options.pending },
  );
  return { scheme, hasNodeFailed };
}

async function waitForReceipt({ receiptOf, wait }: SchemeOptions, hash: Hex): Promise<never> {
  const deadlineMs = wait.clock.monotonicMs() + wait.settleWaitMs;
  for (;;) {
    const receipt = await receiptOf(hash).catch(() => undefined); // repeated below
    if (receipt !== undefined) return receipt as never; // viem's receipt is what the scheme expects
    if (wait.clock.monotonicMs() >= deadlineMs) {
      throw new Error('The transaction is not in a block yet');
    }
    await wait.clock.sleep(wait.pollMs);
  }
}

const RETRY_AFTER_SECONDS = 5;

type Request = [PaymentPayload, PaymentRequirements];

/** The scheme of the exposed facilitator. */
export class ExposedEvmScheme implements SchemeNetworkFacilitator {
  readonly scheme = 'exact';
  readonly caipFamily = 'eip155:*';
  readonly #options: Omit<SchemeOptions, 'pending' | 'name'>;
  readonly #attemptsOf: (hash: Hex) => Promise<readonly Hex[]>;
  readonly #pending = new PendingSettlements();

  /** `attemptsOf` returns the ids of all transactions with the same gas nonce; it never rejects. */
  constructor(
    options: Omit<SchemeOptions, 'pending' | 'name'>,
    attemptsOf: (hash: Hex) => Promise<readonly Hex[]>,
  ) {
    this.#options = options;
    this.#attemptsOf = attemptsOf;
  }

  getExtra(): undefined {
    return undefined;
  }

  getSigners(): string[] {
    const { gasAddress } = this.#options;
    return gasAddress === undefined ? [] : [gasAddress];
  }

  /** Throws 503 if the chain does not respond. */
  readonly verify: SchemeNetworkFacilitator['verify'] = async (payment, required) =>
    await this.#call(
      [payment, required],
      (scheme, payload) => scheme.verify(payload, required),
      ({ isValid }) => isValid,
    );

  /** Throws 503 if the payment was not sent because the chain does not respond. */
  readonly settle: SchemeNetworkFacilitator['settle'] = async (payment, required) =>
    await this.#call(
      [payment, required],
      (scheme, payload) => scheme.settle(payload, required),
      ({ success, transaction }) => success || transaction !== '',
    );

  async #call<Result>(
    [payload, requirements]: Request,
    call: (scheme: TrackedScheme['scheme'], payload: PaymentPayload) => Promise<Result>,
    isConclusive: (result: Result) => boolean,
  ): Promise<Result> {
    const signed = readSigned(payload, requirements);
    const pending = this.#pendingOf([payload, requirements], signed?.transfer);
    const { scheme, hasNodeFailed } = trackedScheme({ ...this.#options, pending, name: 'exact' });
    const result = await call(scheme, signed?.payload ?? payload);
    if (isConclusive(result) || !hasNodeFailed()) return result;
    throw new Fault('SERVICE_UNAVAILABLE', {
      message: 'The chain did not respond; send the same request again',
      retryAfterSeconds: RETRY_AFTER_SECONDS,
    });
  }

  #pendingOf(request: Request, transfer: Erc3009 | undefined): PendingSettlementStore {
    const store = this.#pending.storeOf(...request);
    const token = request[1].asset as Hex; // of a transaction that was sent
    return {
      ...store,
      get: async (key) => {
        const sent = (await store.get(key)) as Hex | undefined; // from `send`
        for (const hash of sent === undefined ? [] : await this.#attemptsOf(sent)) {
          // Nodes that fail or contradict each other are called again while the scheme waits.
          const receipt = await this.#options.receiptOf(hash).catch(() => undefined);
          if (receipt === undefined) continue;
          const isOfPayment =
            hash === sent || (transfer !== undefined && paysExactly(receipt, token, transfer));
          // Otherwise another transaction has used the gas nonce, so this payment is sent again.
          return isOfPayment ? hash : undefined;
        }
        return sent;
      },
    };
  }
}

/**
 * The signed transfer, and the payload with its signature in the form that contracts require; `undefined`
 * for a malformed payload, whose problem the scheme reports.
 */
function readSigned(payment: PaymentPayload, requirements: PaymentRequirements) {
  try {
    const { network, asset, payTo, extra } = requirements;
    const accepted = { scheme: 'exact', network, asset, payTo };
    const inner = payment.payload;
    const offer = { network, asset, payTo, extra: extra as Readonly<Record<string, string>> }; // hashed as text
    const envelope = { network, accepted, inner, identifier: undefined };
    const read = readErc3009(envelope, offer);
    const transfer = erc3009Of(read);
    const given = inner['signature'] as Hex; // checked by the reader
    const hash = hashTypedData(transferTypedData(offer, transfer));
    const signature = contractForm(given, hash, read.wallet);
    const payload =
      signature === given ? payment : { ...payment, payload: { ...inner, signature } };
    return { payload, transfer };
  } catch {
    // The payload is malformed.
    return undefined;
  }
}
