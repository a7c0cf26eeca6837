/**
 * Types of the API's responses, derived from the schemas of the routes. Only types are imported, so
 * that no server code reaches the browser.
 */
import type * as z from 'zod';
import type { DaysResponse } from '../../account/activity-schema.ts';
import type { ApiKeyItem } from '../../account/api-key-schema.ts';
import type { BalanceResponse } from '../../account/billing.ts';
import type { BudgetItem } from '../../account/budgets.ts';
import type {
  ExplainedResponse,
  FailuresResponse,
  RequestsResponse,
} from '../../account/operator/operator-requests-schema.ts';
import type { RefundResponse } from '../../account/operator/operator-refunds.ts';
import type { CardRefundResponse } from '../../checkout/card-refunds.ts';
import type { AccountItem } from '../../account/operator/operator-accounts-schema.ts';
import type { RateLimitLogResponse, RateLimitsResponse } from '../../account/rate-limits.ts';
import type { StatementResponse, TopUpItem } from '../../account/statement.ts';
export type { StatementResponse };
import type {
  Receipt as ReceiptItem,
  ReceiptResponse,
  UsageResponse,
  UsageTagsResponse,
} from '../../account/usage-schema.ts';
import type { BatchObject, FileObject } from '../../batches/schema.ts';
import type { AutoTopUpItem } from '../../checkout/auto-top-up.ts';
import type { CheckoutItem } from '../../checkout/schema.ts';
import type { Model as ModelObject } from '../../models/model-schema.ts';
import type { InvitationItem, MemberItem } from '../../account/members-schema.ts';
import type {
  ConsoleResponse,
  InvitationResponse,
  SessionItem,
} from '../../sessions/sessions-schema.ts';
import type {
  CreatedWebhook,
  DeliveryItem,
  RotatedWebhook,
  WebhookItem,
} from '../../webhooks/schema.ts';

export type {
  AuditResponse,
  BackupsResponse,
  CheckResponse,
  ConfigResponse,
  TopUpAdminItem,
  TopUpDetailResponse,
  VideosResponse,
} from '../../server/ops/admin-schema.ts';
export type { EnginesResponse, EnginesView } from '../../server/ops/engines-schema.ts';
export type { EngineChoices, TestedEngine } from '../../server/ops/engine-setup-schema.ts';
export type { PricesResponse } from '../../server/ops/prices-schema.ts';
export type { BooksResponse } from '../../server/ops/books-schema.ts';
export type { CreatedCheckout } from '../../checkout/schema.ts';
export type {
  ChangedConfig,
  ConfigSection,
  ConfigSections,
} from '../../server/ops/config-editor-schema.ts';
export type { ConsoleResponse, SessionListResponse } from '../../sessions/sessions-schema.ts';
export type { GroupsResponse } from '../../account/operator/operator-usage-schema.ts';

export interface Page<T> {
  readonly data: readonly T[];
  readonly nextCursor: string | null;
}

export interface List<T> {
  readonly data: readonly T[];
}

export type Session = SessionItem;
export type Member = MemberItem;
export type Invitation = InvitationResponse['data'];
export type OpenInvitation = InvitationItem;
export type SignInChallenge = NonNullable<ConsoleResponse['wallet']>;
export type Balance = BalanceResponse;
export type Days = DaysResponse;
export type Sums = Days['totals'];
export type Cost = Sums['cost'];
export type UsageDays = UsageResponse;
/** The list omits the prices. */
export type Receipt = ReceiptItem & Partial<Pick<ReceiptResponse, 'unitPrices' | 'lines'>>;
export type ApiKey = ApiKeyItem;
export type Budget = BudgetItem;
export type TagSums = UsageTagsResponse;
export type TagRow = TagSums['data'][number];
export type StatementEntry = StatementResponse['data'][number];
export type TopUp = TopUpItem;
export type Checkout = CheckoutItem;
export type AutoTopUp = AutoTopUpItem;
export type RateLimits = RateLimitsResponse['data'];
export type Rejection = RateLimitLogResponse['data'][number];
export type Account = AccountItem;
export type { AccountList } from '../../account/operator/operator-accounts-schema.ts';
export type RequestItem = RequestsResponse['data'][number];
export type FailureItem = FailuresResponse['data'][number];
export type ExplainedRequest = ExplainedResponse['data'];
export type RefundState = RefundResponse['data'];
export type CardRefund = CardRefundResponse['data'];
export type Model = z.infer<typeof ModelObject>;
export type Amount = Cost;
export type Batch = z.infer<typeof BatchObject>;
export type StoredFile = z.infer<typeof FileObject>;
export type Webhook = WebhookItem;
export type Thresholds = Webhook['thresholds'];
export type Delivery = DeliveryItem;
/** A webhook with its secret, which is shown once. */
export type SecretWebhook = CreatedWebhook & Partial<Pick<RotatedWebhook, 'previousSecretUntil'>>;
