/** Prices of tools as text, from the current catalog. */
import type { Catalog, CatalogModel } from '../catalog/catalog.ts';

type Row = NonNullable<CatalogModel['price']>['row'];
type ModelType = CatalogModel['type'];

/**
 * The price of the default model of a type, with a hint if there are other models; `undefined` if no
 * model of the type is sold.
 */
export function priceOf(catalog: Catalog, type: ModelType): string | undefined {
  const sold = catalog.listed(type).filter((model) => model.price !== undefined);
  const usual = catalog.holderOf('default', type) ?? sold[0];
  if (usual?.price === undefined) return undefined;
  const others = sold.length > 1 ? '; list_models has the prices of other models' : '';
  return `Price with the model ${usual.id}: ${rowText(usual.price.row, type)}${others}.`;
}

function rowText(row: Row, type: ModelType): string {
  const search = type === 'rerank' ? 'per search of up to 100 documents' : 'per web search';
  const rates = row.imageRates ?? [];
  const hasTokens = row.input !== undefined;
  const image = hasTokens ? 'at most per image' : 'per image';
  const parts = [
    amount(row.input, 'per million input tokens'),
    amount(row.output, 'per million output tokens'),
    ...rates.map(({ perImage, size, quality }) =>
      amount(perImage, [image, size, quality].filter((word) => word !== undefined).join(' ')),
    ),
    amount(row.perImage, rates.length === 0 ? image : image.replace('image', 'other image')),
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

/** The description of a tool with the price of `priceOf`; `undefined` if no model is sold. */
export function aboutPriced(
  catalog: Catalog,
  type: ModelType,
  text: string,
): () => string | undefined {
  return () => {
    const price = priceOf(catalog, type);
    return price && `${text} ${price}`;
  };
}
