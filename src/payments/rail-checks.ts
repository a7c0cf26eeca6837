/** Parts of both rails: arguments and results of the official scheme classes, and health checks. */
import type { PaymentPayload, PaymentRequirements, VerifyResponse } from '@x402/core/types';
import { chainReason } from './chain-log.ts';
import { USDC_DECIMALS, wrongDecimals } from './networks.ts';
import { type Agreement, chainProblems } from './nodes.ts';
import type { SignedPayment } from './payment.ts';
import type { Rail, RailHealth, Verdict } from './rail.ts';
import { GAS_SPONSORING } from './requirements.ts';

/**
 * The arguments of a scheme class. The requirement is built from the stored offer and the signed amount,
 * never from the `accepted` of the caller. With the scheme `upto` the ceiling is verified, and the amount
 * to move is settled.
 */
export function officialRequest(
  payment: SignedPayment,
  step: 'verify' | 'settle',
  maxTimeoutSeconds: number,
): [PaymentPayload, PaymentRequirements] {
  const { offer, authorization, amountUnits } = payment;
  const ceiling = authorization.kind === 'permit2' ? authorization.ceiling : undefined;
  const accepted: PaymentRequirements = {
    scheme: ceiling === undefined ? 'exact' : 'upto',
    network: offer.network as `${string}:${string}`, // CAIP-2
    asset: offer.asset,
    amount: ((step === 'verify' ? ceiling : undefined) ?? amountUnits).toString(),
    payTo: offer.payTo,
    maxTimeoutSeconds,
    extra: { ...offer.extra },
  };
  const { eip2612, ...payload } = payment.inner;
  const extensions = eip2612 === undefined ? {} : { [GAS_SPONSORING]: { info: eip2612 } };
  return [{ x402Version: 2, accepted, payload, extensions }, accepted];
}

/** The verdict of a scheme; for the reasons in `unclear` the chain decides whether the payment arrived. */
export async function verdictOf(
  response: Promise<VerifyResponse>,
  unclear: readonly string[],
  hasNodeFailed = (): boolean => false,
): Promise<Verdict> {
  try {
    const result = await response;
    if (result.isValid) return { kind: 'valid' };
    if (hasNodeFailed()) return { kind: 'unclear', reason: 'chain_unavailable' };
    const reason = chainReason(result.invalidReason ?? 'unknown');
    return { kind: unclear.includes(reason) ? 'unclear' : 'rejected', reason };
  } catch (error) {
    // The shape was checked before, so the chain did not respond.
    return { kind: 'unclear', reason: chainReason(error) };
  }
}

/** Rows store pending settlements; the store of the schemes would grow without bound. */
export const NO_PENDING_STORE = {
  get: async (): Promise<undefined> => undefined,
  set: async (): Promise<void> => undefined,
  delete: async (): Promise<void> => undefined,
};

/** The reason why no amount of a rail's token can be credited now, or `undefined`. Never rejects. */
export async function decimalsProblem(
  rail: Pick<Rail, 'offer' | 'decimals'>,
): Promise<string | undefined> {
  const { asset } = rail.offer;
  try {
    const decimals = await rail.decimals();
    return decimals === USDC_DECIMALS ? undefined : wrongDecimals(asset, decimals);
  } catch (error) {
    return `The decimals of the token ${asset} cannot be read: ${chainReason(error)}`;
  }
}

interface HealthProbe<Node> {
  readonly nodes: {
    readonly each: readonly Node[];
    readonly avoid: (lagging: ReadonlySet<number>) => void;
  };
  readonly agreement: Pick<Agreement<Node>, 'lagging'>;
  /** Returns the CAIP-2 name of the chain that a node serves. */
  readonly networkOf: (node: Node) => Promise<string>;
  readonly gasAddress: string | undefined;
  readonly gasBalance: bigint | undefined;
  /** Balance in the smallest unit below which `lowProblem` is reported. */
  readonly warnBelow: bigint;
  readonly lowProblem: string;
  /** Reasons why nothing can be settled. */
  readonly blocking: readonly (string | undefined)[];
  readonly warnings: readonly (string | undefined)[];
}

export async function healthOf<Node>(rail: Rail, probe: HealthProbe<Node>): Promise<RailHealth> {
  const { network } = rail;
  const { nodes, agreement, networkOf, gasAddress, gasBalance, warnBelow } = probe;
  const { each, avoid } = nodes;
  const { problems, isRight } = await chainProblems(each, network, networkOf);
  const lagging = await agreement.lagging();
  avoid(lagging);
  const late = Array.from(
    lagging,
    (index) => `Node ${index + 1} of ${each.length} is more than a minute behind the others`,
  );
  const blocking = [await decimalsProblem(rail), ...probe.blocking].filter(isProblem);
  const low = gasBalance !== undefined && gasBalance < warnBelow ? probe.lowProblem : undefined;
  const warnings = [...late, low, ...probe.warnings].filter(isProblem);
  return {
    network,
    isReady: isRight && blocking.length === 0,
    problems: [...problems, ...blocking, ...warnings],
    gasAddress,
    gasBalance,
  };
}

function isProblem(text: string | undefined): text is string {
  return text !== undefined;
}
