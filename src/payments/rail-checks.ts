/** What the rails of both chains share: calls of the official scheme classes, and health checks. */
import type { PaymentPayload, PaymentRequirements, VerifyResponse } from '@x402/core/types';
import { chainReason } from './chain-log.ts';
import { USDC_DECIMALS, wrongDecimals } from './networks.ts';
import { chainProblems } from './nodes.ts';
import type { SignedPayment } from './payment.ts';
import type { Rail, RailHealth, Verdict } from './rail.ts';
import { GAS_SPONSORING } from './requirements.ts';

/**
 * The arguments of a scheme class. The requirement is built from the offer that the payment was made
 * under and the signed amount, never from what the caller reports as accepted. With the scheme `upto`
 * the ceiling is verified, and the amount that is moved is settled.
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

/** The verdict of a scheme; for the reasons in `unclear` the chain decides whether it was paid. */
export async function verdictOf(
  asked: Promise<VerifyResponse>,
  unclear: readonly string[],
  hasNodeFailed = (): boolean => false,
): Promise<Verdict> {
  try {
    const result = await asked;
    if (result.isValid) return { kind: 'valid' };
    if (hasNodeFailed()) return { kind: 'unclear', reason: 'chain_unavailable' };
    const reason = chainReason(result.invalidReason ?? 'unknown');
    return { kind: unclear.includes(reason) ? 'unclear' : 'rejected', reason };
  } catch (error) {
    // Shapes were checked before, so the chain did not respond.
    return { kind: 'unclear', reason: chainReason(error) };
  }
}

/** Our journal stores pending settlements; the store of the schemes would grow without bound. */
export const NO_PENDING_STORE = {
  get: async (): Promise<undefined> => undefined,
  set: async (): Promise<void> => undefined,
  delete: async (): Promise<void> => undefined,
};

/** Why no amount of a rail's token can be credited now, or `undefined`. Never rejects. */
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
  readonly nodes: readonly Node[];
  /** The CAIP-2 name of the chain that a node serves. */
  readonly networkOf: (node: Node) => Promise<string>;
  readonly gasAddress: string | undefined;
  readonly gasBalance: bigint | undefined;
  /** Smallest units below which the operator is warned, with the warning. */
  readonly warnBelow: bigint;
  readonly lowProblem: string;
  /** Why nothing can be settled; `undefined` members are no problem. */
  readonly blocking: readonly (string | undefined)[];
  /** Set if the gas key cannot pay for a settlement. */
  readonly cannotPay: string | undefined;
  readonly warnings: readonly (string | undefined)[];
}

export async function healthOf<Node>(rail: Rail, probe: HealthProbe<Node>): Promise<RailHealth> {
  const { network } = rail;
  const { nodes, networkOf, gasAddress, gasBalance, warnBelow, cannotPay } = probe;
  const { problems, isRight } = await chainProblems(nodes, network, networkOf);
  const blocking = [await decimalsProblem(rail), ...probe.blocking].filter(isProblem);
  const low = gasBalance !== undefined && gasBalance < warnBelow ? probe.lowProblem : undefined;
  const others = [low, ...probe.warnings, cannotPay].filter(isProblem);
  return {
    network,
    isReady: isRight && blocking.length === 0 && cannotPay === undefined,
    problems: [...problems, ...blocking, ...others],
    gasAddress,
    gasBalance,
  };
}

function isProblem(text: string | undefined): text is string {
  return text !== undefined;
}
