/** What tools cost, in words: from the prices of the catalogue as they are now. */
import type { Catalog, CatalogModel } from '../catalog/catalog.ts';

type Row = NonNullable<CatalogModel['price']>['row'];
type ModelType = CatalogModel['type'];

/**
 * The price of the work of a type of models: that of its default, and that there are others;
 * `undefined` while no model of the type is sold.
 */
export function priceOf(catalog: Catalog, type: ModelType): string | undefined {
  const sold = catalog.listed(type).filter((model) => model.price !== undefined);
  const usual = catalog.holderOf('default', type) ?? sold[0];
  if (usual?.price === undefined) return undefined;
  const others = sold.length > 1 ? '; other models have prices of their own, see list_models' : '';
  return `Price with the model ${usual.id}: ${wordsOf(usual.price.row, type)}${others}.`;
}

function wordsOf(row: Row, type: ModelType): string {
  const search = type === 'rerank' ? 'per search of up to 100 documents' : 'per web search';
  const parts = [
    amount(row.input, 'per million input tokens'),
    amount(row.output, 'per million output tokens'),
    ...(row.imageRates ?? []).map(({ perImage, size, quality }) =>
      amount(perImage, ['per image', size, quality].filter((word) => word !== undefined).join(' ')),
    ),
    amount(row.perImage, row.imageRates === undefined ? 'per image' : 'per other image'),
    amount(row.perMillionCharacters, 'per million characters'),
    amount(row.perSecond, 'per second of audio'),
    amount(row.perSearch, search),
    amount(row.perRequest, 'per request'),
  ].filter((part) => part !== undefined);
  return parts.length === 0 ? 'see the quote' : parts.join(', ');
}

function amount(usd: string | undefined, unit: string): string | undefined {
  return usd === undefined ? undefined : `${usd} USD ${unit}`;
}
