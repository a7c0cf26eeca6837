/** Payments by people: the public file of this folder. Opens the configured providers. */
import { type Config, proxyOf } from '../../config/config.ts';
import { type CardOptions, CardPayments } from './card-payments.ts';
import type { ProviderName } from './card-rows.ts';
import type { PaymentProvider } from './provider.ts';

export { type CardAuditReport, auditCards } from './card-audit.ts';
export { type CardPayments, type CardStep } from './card-payments.ts';
export {
  type CardPayment,
  type CardRefund,
  PROVIDER_NAMES,
  type ProviderName,
} from './card-rows.ts';
export { type CardPostings, type CardSums, cardReceipts } from './card-table.ts';

export interface OpenCardsOptions extends Omit<CardOptions, 'providers'> {
  readonly config: Config;
}

/** Loads the library of each configured provider; `undefined` without one. */
export async function openCards(options: OpenCardsOptions): Promise<CardPayments | undefined> {
  const providers = await openProviders(options);
  return providers.size === 0 ? undefined : new CardPayments({ ...options, providers });
}

export async function openProviders({
  config,
  clock,
}: Pick<OpenCardsOptions, 'config' | 'clock'>): Promise<Map<ProviderName, PaymentProvider>> {
  const providers = new Map<ProviderName, PaymentProvider>();
  const { payments, publicUrl, service, proxies } = config;
  const { stripe: settings } = payments;
  if (settings !== undefined) {
    const { openStripe } = await import('./stripe.ts');
    const proxy = proxyOf(proxies, settings.apiUrl);
    const serviceName = service.title;
    providers.set('stripe', openStripe({ settings, publicUrl, serviceName, proxy, clock }));
  }
  if (payments.shop !== undefined) {
    providers.set('shop', (await import('./shop.ts')).openShop(payments.shop, clock));
  }
  return providers;
}
